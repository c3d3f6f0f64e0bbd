/* Chapter import: a consumer takes a managed tensor and says what it needs. */
#include "producer.h"
#include <sys/mman.h>
#include <unistd.h>

static int deletions;
static _Alignas(256) int32_t numbers[64];
static DLDataType i32;

static dlro_import_options wants(uint32_t access, uint32_t copy, uint32_t layout, uint32_t alignment) {
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  options.access = access;
  options.copy = copy;
  options.layout = layout;
  options.alignment = alignment;
  return options;
}

static void reset(void) {
  int i;
  for (i = 0; i < LENGTH(numbers); i++) numbers[i] = i;
  deletions = 0;
}

static void must_release(Tensor *tensor) {
  const int before = deletions;
  dlro_tensor_release(tensor);
  CHECK(deletions == before + 1);
}

static void aliases(void) {
  int64_t shape[2] = {2, 3}, strides[2] = {-3, 1};
  uint64_t flags;
  reset();
  for (flags = 0; flags < 8; flags++) {
    const uint64_t sent = (flags & 3) | (flags & 4 ? UNKNOWN_FLAG : 0);
    Tensor *foreign = foreign_tensor(describe(numbers + 3, i32, 2, shape, strides), 9, sent, &deletions), *out = NULL;
    Foreign before;
    void *data;
    foreign->dl_tensor.byte_offset = 8;
    memcpy(&before, foreign, sizeof before);
    CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
    CHECK(out == foreign && memcmp(&before, foreign, sizeof before) == 0 && deletions == 0);
    CHECK(dlro_tensor_data_mut(out, &data) == (sent & READ_ONLY ? DLRO_ERR_READ_ONLY : DLRO_OK));
    CHECK(data == (sent & READ_ONLY ? NULL : numbers + 5));
    must_release(out);
    deletions = 0;
  }
  checked("cases A2, B14, C5, E1: where nothing has to be done the foreign tensor comes back, untouched");
}

/* What is wrong with a tensor, and what is answered: the caller still owns it. */
static void failures(void) {
  int64_t shape[1] = {4}, negative[1] = {-4}, huge[1] = {INT64_MAX}, zero[1] = {0};
  dlro_import_options write_never = wants(DLRO_ACCESS_WRITE, DLRO_COPY_NEVER, 0, 0);
  dlro_import_options immutable_never = wants(DLRO_ACCESS_IMMUTABLE, DLRO_COPY_NEVER, 0, 0);
  dlro_import_options aligned_never = wants(0, DLRO_COPY_NEVER, 0, 1 << 30);
  dlro_import_options always = wants(0, DLRO_COPY_ALWAYS, 0, 0), on_host = wants(0, 0, 0, 0), on_cuda = on_host;
  dlro_import_options unknown = on_host;
  DLTensor good = describe(numbers, i32, 1, shape, NULL), bad;
  Tensor *foreign, *out;
  on_host.flags = DLRO_IMPORT_HOST;
  on_cuda.device_type = kDLCUDA, on_cuda.device_id = 1;
  unknown.access = 7;
  reset();
#define REFUSED(tensor, minor, flags, options, status, text)                                       \
  do {                                                                                             \
    Foreign before;                                                                                \
    foreign = foreign_tensor(tensor, minor, flags, &deletions);                                    \
    memcpy(&before, foreign, sizeof before);                                                       \
    CHECK_REFUSED(out, dlro_tensor_import(foreign, options, &out), status, text);                  \
    CHECK(deletions == 0 && memcmp(&before, foreign, sizeof before) == 0);                         \
    CHECK_STATUS(dlro_tensor_import(foreign, options, NULL), DLRO_ERR_NULL, "out is NULL");        \
    CHECK(deletions == 0);                                                                         \
    dlro_tensor_release(foreign);                                                                  \
    CHECK(deletions == 1);                                                                         \
    deletions = 0;                                                                                 \
  } while (0)
  bad = good, bad.data = NULL;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_NULL, "data is NULL, and the elements take 16 bytes");
  bad = good, bad.shape = NULL;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_NULL, "shape is NULL with ndim 1");
  bad = good, bad.ndim = -1;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_BOUNDS, "ndim is -1");
  bad = good, bad.ndim = 0x7fffffff;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_BOUNDS, "ndim is 2147483647");
  bad = good, bad.shape = negative;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_BOUNDS, "shape[0] is -4");
  bad = good, bad.shape = huge;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_BOUNDS, "does not fit");
  bad = good, bad.byte_offset = UINT64_MAX;
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_BOUNDS, "leaves the address space");
  bad = good, bad.dtype = dtype(200, 8, 1);
  REFUSED(bad, 9, UNKNOWN_FLAG, NULL, DLRO_ERR_DTYPE, "code 200");
  bad = good, bad.dtype = dtype(kDLOpaqueHandle, 64, 1);
  REFUSED(bad, 0, 0, NULL, DLRO_ERR_DTYPE, "opaque handle");
  REFUSED(good, 0, READ_ONLY, &write_never, DLRO_ERR_READ_ONLY, "write access is required, and the tensor is read-only");
  bad = good, bad.strides = zero;
  REFUSED(bad, 0, 0, &write_never, DLRO_ERR_COPY_NEEDED, "elements of the tensor share memory with each other");
  REFUSED(good, 0, 0, &immutable_never, DLRO_ERR_NOT_IMMUTABLE, "another library made the tensor");
  REFUSED(good, 0, READ_ONLY, &immutable_never, DLRO_ERR_NOT_IMMUTABLE, "another library made the tensor");
  REFUSED(good, 0, 0, &aligned_never, DLRO_ERR_COPY_NEEDED, "an alignment of 1073741824 bytes is required");
  REFUSED(on_device(good, 2, 2), 0, 0, &on_cuda, DLRO_ERR_DEVICE, "on device (type 2, id 2), and (type 2, id 1) is wanted");
  REFUSED(good, 0, 0, &on_cuda, DLRO_ERR_DEVICE, "on device (type 1, id 0), and (type 2, id 1) is wanted");
  REFUSED(on_device(good, 2, 0), 0, 0, &on_host, DLRO_ERR_DEVICE, "device (type 2, id 0) holds memory that the host cannot");
  REFUSED(on_device(good, 10, 0), 0, 0, &always, DLRO_ERR_DEVICE, "device (type 10, id 0) holds memory");
  REFUSED(good, 0, 0, &unknown, DLRO_ERR_ARGUMENT, "access is 7");
  CHECK_REFUSED(out, dlro_tensor_import(NULL, NULL, &out), DLRO_ERR_NULL, "foreign is NULL");
  checked("cases B7, B8, C5, D4, G1, H2: on every failure the caller still owns the tensor, which has not changed");

  /* Case J2: nothing to call where there is no deleter. */
  foreign = foreign_tensor(good, 0, 0, &deletions);
  foreign->dl_tensor.dtype = dtype(kDLOpaqueHandle, 64, 1);
  foreign->deleter = NULL;
  CHECK_REFUSED(out, dlro_tensor_import(foreign, NULL, &out), DLRO_ERR_DTYPE, "opaque handle");
  dlro_tensor_release(foreign);
  CHECK(deletions == 0);
  free(foreign);
  checked("case J2: a failed import of a tensor without deleter");
}

static void read_only_to_writer(void) {
  int64_t shape[1] = {4};
  dlro_import_options share = wants(DLRO_ACCESS_READ, DLRO_COPY_NEVER, 0, 0);
  dlro_import_options copy = wants(DLRO_ACCESS_WRITE, DLRO_COPY_IF_NEEDED, 0, 0);
  dlro_import_options refuse = wants(DLRO_ACCESS_WRITE, DLRO_COPY_NEVER, 0, 0);
  Tensor *foreign, *out;
  void *data;
  reset();
  foreign = foreign_tensor(describe(numbers, i32, 1, shape, NULL), 1, READ_ONLY, &deletions);
  CHECK_REFUSED(out, dlro_tensor_import(foreign, &refuse, &out), DLRO_ERR_READ_ONLY, "policy is NEVER");
  CHECK_OK(dlro_tensor_import(foreign, &copy, &out));
  CHECK(deletions == 1 && !is_address(out, numbers));
  CHECK(out->flags == IS_COPIED && dlro_tensor_mutability(out) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_tensor_data_mut(out, &data));
  CHECK(memcmp(data, numbers, 16) == 0);
  memset(data, 0xFF, 16);
  CHECK(numbers[0] == 0 && numbers[3] == 3);
  dlro_tensor_release(out);
  CHECK(deletions == 1);
  foreign = foreign_tensor(describe(numbers, i32, 1, shape, NULL), 1, READ_ONLY, &deletions);
  CHECK_OK(dlro_tensor_import(foreign, &share, &out));
  CHECK(is_address(out, numbers) && !is_writable(out));
  must_release(out);
  checked("cases A4, A7, A11, A14, B14: share, copy or refuse; a copy releases the original before it returns");
}

static void strides(void) {
  int64_t shape[3] = {2, 3, 4}, none[2] = {0, 3};
  uint32_t minor;
  reset();
  for (minor = 0; minor < 10; minor++) {
    Tensor *foreign = foreign_tensor(describe(numbers, i32, 3, shape, NULL), minor, READ_ONLY, &deletions), *out = NULL;
    int i;
    deletions = 0;
    CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
    CHECK(out != foreign && deletions == 0 && foreign->dl_tensor.strides == NULL);
    CHECK(out->dl_tensor.strides[0] == 12 && out->dl_tensor.strides[1] == 4 && out->dl_tensor.strides[2] == 1);
    CHECK(is_address(out, numbers) && !is_writable(out) && out->flags == READ_ONLY);
    CHECK(out->version.minor == 0);
    CHECK_OK(dlro_tensor_validate(out));
    for (i = 0; i < 24; i++) CHECK(int32_at(out, i) == i);
    must_release(out);

    foreign = foreign_tensor(describe(NULL, i32, 2, none, NULL), minor, 0, &deletions);
    CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
    CHECK(out->dl_tensor.strides != NULL && is_address(out, NULL));
    must_release(out);

    foreign = foreign_tensor(describe(numbers, i32, 0, (int64_t *)1, (int64_t *)1), minor, 0, &deletions);
    CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
    CHECK(out == foreign);
    must_release(out);
    foreign = foreign_tensor(describe(numbers, i32, 0, NULL, NULL), minor, 0, &deletions);
    CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
    CHECK(out == foreign);
    must_release(out);
  }
  checked("cases D1, D2, D3: NULL strides from every version; what comes out has strides and owns the foreign tensor");
}

static void counting_delete(Tensor *self) {
  (void)self;
  deletions++;
}

/* Another major version: only the first 32 bytes exist. */
static void other_major(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Tensor *tensor = (Tensor *)(void *)(pages + page - 32), *out;
  DLPackVersion one = {1, 0};
  dlro_exported exported;
  DLManagedTensor *legacy;
  dlro_import_options every = wants(DLRO_ACCESS_WRITE, DLRO_COPY_ALWAYS, DLRO_LAYOUT_ROW_MAJOR, 64);
  CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
  reset();
  tensor->version.major = 2;
  tensor->deleter = counting_delete;
  tensor->flags = READ_ONLY;
  every.flags = DLRO_IMPORT_ADOPT;
  CHECK_REFUSED(out, dlro_tensor_import(tensor, NULL, &out), DLRO_ERR_VERSION, "DLPack version 2.0");
  CHECK_REFUSED(out, dlro_tensor_import(tensor, &every, &out), DLRO_ERR_VERSION, "may only release it");
  CHECK_REFUSED(out, dlro_tensor_copy(tensor, &out), DLRO_ERR_VERSION, "2.0");
  CHECK_REFUSED(out, dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &out), DLRO_ERR_ARGUMENT, "not made by");
  CHECK_STATUS(dlro_tensor_freeze(tensor), DLRO_ERR_ARGUMENT, "not made by this library");
  CHECK_STATUS(dlro_tensor_copy_into(tensor, tensor), DLRO_ERR_VERSION, "2.0");
  CHECK_REFUSED(legacy, dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy), DLRO_ERR_VERSION, "2.0");
  CHECK_REFUSED(exported, dlro_tensor_export_for(tensor, NULL, NULL, &exported), DLRO_ERR_VERSION, "2.0");
  CHECK_REFUSED(exported, dlro_tensor_export_for(tensor, &one, NULL, &exported), DLRO_ERR_VERSION, "2.0");
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY);
  CHECK(deletions == 0);
  must_release(tensor);
  CHECK(munmap(pages, 2 * page) == 0);
  checked("rule version: another major is refused by everything that takes a tensor, and can be released");
}

static void no_deleter(void) {
  int64_t shape[1] = {4}, back[1] = {-1};
  Tensor stack = ownerless(describe(numbers, i32, 1, shape, NULL), 1, READ_ONLY), before;
  Tensor *heap = (Tensor *)malloc(sizeof *heap), *out;
  dlro_import_options copy = wants(DLRO_ACCESS_WRITE, 0, 0, 0), adopt = wants(0, 0, 0, 0);
  adopt.flags = DLRO_IMPORT_ADOPT;
  reset();
  memcpy(&before, &stack, sizeof stack);
  CHECK_OK(dlro_tensor_import(&stack, NULL, &out));
  CHECK(out != &stack && out->dl_tensor.strides != NULL);
  dlro_tensor_release(out);
  CHECK_OK(dlro_tensor_import(&stack, &adopt, &out));
  dlro_tensor_release(out);
  CHECK_OK(dlro_tensor_import(&stack, &copy, &out));
  dlro_tensor_release(out);
  CHECK(memcmp(&before, &stack, sizeof stack) == 0);
  stack.dl_tensor.strides = back, stack.dl_tensor.data = numbers + 3;
  CHECK_OK(dlro_tensor_import(&stack, NULL, &out));
  CHECK(out == &stack);
  dlro_tensor_release(out);
  CHECK(stack.deleter == NULL && stack.dl_tensor.strides == back);
  if (heap == NULL) abort();
  *heap = before;
  CHECK_OK(dlro_tensor_import(heap, &adopt, &out));
  dlro_tensor_release(out);
  CHECK(memcmp(&before, heap, sizeof before) == 0);
  free(heap);
  checked("cases B4, B8: a NULL deleter is not called, and the struct on the stack or in the heap not freed");
}

static void flags_survive(void) {
  int64_t shape[2] = {2, 3};
  const uint64_t sent[] = {UNKNOWN_FLAG, UNKNOWN_FLAG | READ_ONLY, UNKNOWN_FLAG | IS_COPIED, READ_ONLY, PADDED | READ_ONLY,
                           (uint64_t)1 << 63 | READ_ONLY | PADDED};
  dlro_import_options adopt = wants(0, 0, 0, 0), copy = wants(0, DLRO_COPY_ALWAYS, 0, 0);
  DLPackVersion newest = {1, 3};
  int i, hop;
  adopt.flags = DLRO_IMPORT_ADOPT;
  for (i = 0; i < LENGTH(sent); i++) {
    Tensor *tensor, *next;
    dlro_exported exported;
    void *data;
    reset();
    tensor = foreign_tensor(describe(numbers, i32, 2, shape, NULL), 7, sent[i], &deletions);
    CHECK_OK(dlro_tensor_import(tensor, &adopt, &next));
    CHECK(next != tensor && next->flags == sent[i]);
    /* Bits that we do not know mean what that version says. */
    CHECK(next->version.minor == (sent[i] & ~(READ_ONLY | IS_COPIED | PADDED) ? 7 : sent[i] & PADDED ? 1 : 0));
    tensor = next;
    for (hop = 0; hop < 5; hop++) {
      CHECK_OK(dlro_tensor_share(tensor, sent[i] & READ_ONLY ? DLRO_MUTABILITY_READ_ONLY : DLRO_MUTABILITY_WRITABLE,
                                 NULL, &next));
      CHECK(next->flags == (sent[i] & ~IS_COPIED));
      CHECK(tensor->flags == (sent[i] & ~IS_COPIED));
      dlro_tensor_release(tensor);
      CHECK_OK(dlro_tensor_export_for(next, &newest, NULL, &exported));
      CHECK_OK(dlro_tensor_import(exported.versioned, NULL, &tensor));
      CHECK(tensor->flags == (sent[i] & ~IS_COPIED) && deletions == 0);
    }
    CHECK(dlro_tensor_data_mut(tensor, &data) == (sent[i] & READ_ONLY ? DLRO_ERR_READ_ONLY : DLRO_OK));
    CHECK_OK(dlro_tensor_import(tensor, &copy, &next));
    CHECK(deletions == 1);
    CHECK(next->flags == ((sent[i] & ~READ_ONLY) | IS_COPIED));
    CHECK(is_writable(next));
    dlro_tensor_release(next);
    CHECK(deletions == 1);
  }
  checked("cases A8, A10, C5, rule flags: READ_ONLY and unknown bits survive n hops; IS_COPIED goes when shared, comes with a copy");
}

static void options(void) {
  struct {
    dlro_import_options known;
    unsigned char tail[24];
  } larger;
  int64_t shape[1] = {4}, one[1] = {1};
  Tensor tensor, *out;
  int i;
  tensor = ownerless(describe(numbers, i32, 1, shape, one), 0, 0);
#define OPTIONS(set, status, text)                                                                  \
  do {                                                                                              \
    larger.known = (dlro_import_options)DLRO_IMPORT_OPTIONS_INIT;                                   \
    memset(larger.tail, 0, sizeof larger.tail);                                                     \
    set;                                                                                            \
    CHECK_REFUSED(out, dlro_tensor_import(&tensor, &larger.known, &out), status, text);             \
  } while (0)
  OPTIONS(larger.known.struct_size = 0, DLRO_ERR_ARGUMENT, "options.struct_size is 0, and the smallest version has 40 bytes");
  OPTIONS(larger.known.struct_size = 39, DLRO_ERR_ARGUMENT, "struct_size is 39");
  OPTIONS(larger.known.struct_size = SIZE_MAX, DLRO_ERR_ARGUMENT, "struct_size is 18446744073709551615");
  OPTIONS(larger.known.struct_size = (size_t)1 << 20, DLRO_ERR_ARGUMENT, "struct_size is 1048576");
  for (i = 0; i < 24; i++) {
    char expected[64];
    snprintf(expected, sizeof expected, "at offset %d that is not 0", 40 + i);
    OPTIONS((larger.known.struct_size = 64, larger.tail[i] = 1), DLRO_ERR_ARGUMENT, expected);
  }
  OPTIONS(larger.known.access = 3, DLRO_ERR_ARGUMENT, "access is 3, which is none of its values");
  OPTIONS(larger.known.access = UINT32_MAX, DLRO_ERR_ARGUMENT, "access is 4294967295");
  OPTIONS(larger.known.copy = 3, DLRO_ERR_ARGUMENT, "copy is 3");
  OPTIONS(larger.known.copy = UINT32_MAX, DLRO_ERR_ARGUMENT, "copy is 4294967295");
  OPTIONS(larger.known.layout = 4, DLRO_ERR_ARGUMENT, "layout is 4");
  OPTIONS(larger.known.flags = 4, DLRO_ERR_ARGUMENT, "flags is 4");
  OPTIONS(larger.known.flags = 1u << 31, DLRO_ERR_ARGUMENT, "flags is 2147483648");
  OPTIONS(larger.known.threads = 1025, DLRO_ERR_ARGUMENT, "threads is 1025");
  OPTIONS(larger.known.alignment = 3, DLRO_ERR_ARGUMENT, "alignment is 3 bytes; it must be 0 or a power of two");
  OPTIONS(larger.known.alignment = 1u << 31, DLRO_ERR_ARGUMENT, "alignment is 2147483648");
  checked("case H3: sizes, tails, unknown numbers and too many threads in the options are refused");

  larger.known = (dlro_import_options)DLRO_IMPORT_OPTIONS_INIT;
  memset(larger.tail, 0, sizeof larger.tail);
  CHECK(larger.known.struct_size == 40 && sizeof larger.known == 40);
  CHECK(all_zero((char *)&larger.known + sizeof(size_t), sizeof larger.known - sizeof(size_t)));
  for (i = 40; i <= 64; i++) {
    larger.known.struct_size = (size_t)i;
    CHECK_OK(dlro_tensor_import(&tensor, &larger.known, &out));
    CHECK(out == &tensor);
  }
  larger.known.struct_size = 40;
  larger.tail[0] = 1; /* behind what the caller says is there */
  CHECK_OK(dlro_tensor_import(&tensor, &larger.known, &out));
  larger.known.device_id = 77; /* not read with device_type 0 */
  CHECK_OK(dlro_tensor_import(&tensor, &larger.known, &out));
  for (i = 0; i <= 30; i++) {
    larger.known.alignment = 1u << i;
    larger.known.copy = DLRO_COPY_NEVER;
    CHECK(dlro_tensor_import(&tensor, &larger.known, &out) ==
          ((uintptr_t)numbers % (1u << i) == 0 ? DLRO_OK : DLRO_ERR_COPY_NEEDED));
  }
  checked("case A20: defaults are all 0, a larger struct with a tail of 0 is taken, alignments up to 2^30");
}

static void devices(void) {
  const int32_t types[] = {2, 4, 7, 8, 13, 15, 18, 19, 99, 1000, -1, INT32_MIN, INT32_MAX};
  int64_t shape[1] = {4}, one[1] = {1};
  int i;
  reset();
  for (i = 0; i < LENGTH(types); i++) {
    dlro_import_options options = wants(DLRO_ACCESS_WRITE, 0, DLRO_LAYOUT_ROW_MAJOR, 0), host = options;
    Tensor *foreign = foreign_tensor(on_device(describe(numbers, i32, 1, shape, one), types[i], 2), 9, 0, &deletions);
    Tensor *out = NULL;
    foreign->dl_tensor.byte_offset = 4;
    options.device_type = types[i], options.device_id = 2;
    host.flags = DLRO_IMPORT_HOST;
    CHECK_REFUSED(out, dlro_tensor_import(foreign, &host, &out), DLRO_ERR_DEVICE, "id 2) holds memory that the host");
    /* Also where the very device is named: the host still cannot read it. */
    host.device_type = types[i], host.device_id = 2;
    CHECK_REFUSED(out, dlro_tensor_import(foreign, &host, &out), DLRO_ERR_DEVICE, "id 2) holds memory that the host");
    options.device_id = 1;
    CHECK_REFUSED(out, dlro_tensor_import(foreign, &options, &out), DLRO_ERR_DEVICE, "id 1) is wanted");
    options.device_id = 2;
    CHECK_OK(dlro_tensor_import(foreign, &options, &out));
    CHECK(out == foreign);
    options.flags = DLRO_IMPORT_ADOPT;
    CHECK_OK(dlro_tensor_import(foreign, &options, &out));
    CHECK(out != foreign && out->dl_tensor.data == numbers && out->dl_tensor.byte_offset == 4);
    CHECK((int32_t)out->dl_tensor.device.device_type == types[i] && out->dl_tensor.device.device_id == 2);
    foreign = out;
    options.copy = DLRO_COPY_ALWAYS;
    CHECK_REFUSED(out, dlro_tensor_import(foreign, &options, &out), DLRO_ERR_DEVICE, "holds memory that the host cannot");
    options.copy = DLRO_COPY_IF_NEEDED, options.access = DLRO_ACCESS_IMMUTABLE;
    CHECK(dlro_tensor_import(foreign, &options, &out) != DLRO_OK);
    must_release(foreign);
  }
  {
    /* Alignment is no property of a handle. */
    dlro_import_options aligned = wants(0, DLRO_COPY_NEVER, 0, 1 << 20);
    Tensor tensor = ownerless(on_device(describe((void *)3, i32, 1, shape, one), kDLMetal, 0), 0, 0), *out;
    CHECK_OK(dlro_tensor_import(&tensor, &aligned, &out));
  }
  checked("cases G1, G2, G4: any device passes through with its id, a copy or a host reader is refused");
  for (i = 0; i < 3; i++) {
    const int32_t hosts[] = {kDLCPU, kDLCUDAHost, kDLROCMHost};
    Tensor tensor = ownerless(on_device(describe(numbers, i32, 1, shape, one), hosts[i], 3), 0, 0), *out;
    dlro_import_options host = wants(0, DLRO_COPY_ALWAYS, 0, 0);
    host.flags = DLRO_IMPORT_HOST;
    CHECK_OK(dlro_tensor_import(&tensor, &host, &out));
    CHECK(out->dl_tensor.device.device_type == kDLCPU && out->dl_tensor.device.device_id == 0);
    dlro_tensor_release(out);
    host.copy = DLRO_COPY_NEVER;
    CHECK_OK(dlro_tensor_import(&tensor, &host, &out));
    CHECK(out == &tensor);
  }
  checked("case G2: host memory of three kinds is read, and copied to the CPU");
}

/* --- the plan, all combinations against a second statement of the header's table --- */

enum { ROW, COLUMN, BACKWARD, GAPS, CROSSING, LAYOUTS };
enum { FOREIGN, FOREIGN_RO, FOREIGN_COPIED, FOREIGN_COPIED_RO, OURS_LENT, OURS_RO, OURS_IMMUTABLE, OURS_COPIED, MAKERS };

typedef struct {
  int maker, layout;
  bool aligned;
  dlro_import_options want;
} Case;

static Tensor *make(const Case *c) {
  static int64_t shape[2] = {3, 4};
  int64_t strides[LAYOUTS][2] = {{4, 1}, {1, 3}, {-4, 1}, {8, 2}, {1, 1}};
  const int first = c->layout == BACKWARD ? 16 : 0;
  DLTensor layout = describe(numbers, i32, 2, shape, strides[c->layout]);
  Tensor *tensor = NULL;
  /* numbers is aligned to 64, and byte_offset decides. */
  layout.byte_offset = (uint64_t)(first + (c->aligned ? 0 : 1)) * sizeof(int32_t);
  switch (c->maker) {
    case FOREIGN: return foreign_tensor(layout, 0, 0, &deletions);
    case FOREIGN_RO: return foreign_tensor(layout, 0, READ_ONLY, &deletions);
    case FOREIGN_COPIED: return foreign_tensor(layout, 0, IS_COPIED, &deletions);
    case FOREIGN_COPIED_RO: return foreign_tensor(layout, 0, IS_COPIED | READ_ONLY, &deletions);
    case OURS_LENT: CHECK_OK(dlro_tensor_export(&layout, 0, 0, &deletions, count_release, &tensor)); break;
    case OURS_RO: CHECK_OK(dlro_tensor_export(&layout, 0, 1, &deletions, count_release, &tensor)); break;
    case OURS_IMMUTABLE: CHECK_OK(dlro_tensor_export(&layout, 0, 2, &deletions, count_release, &tensor)); break;
    default: CHECK_OK(dlro_tensor_export(&layout, IS_COPIED, 0, &deletions, count_release, &tensor)); break;
  }
  return tensor;
}

/* What the header's table says: a status, or whether it is a copy. */
static int32_t expected(const Case *c, bool *copied, const char **sentence) {
  const bool foreign_copied = c->maker == FOREIGN_COPIED || c->maker == FOREIGN_COPIED_RO;
  const bool read_only = c->maker == FOREIGN_RO || c->maker == FOREIGN_COPIED_RO || c->maker == OURS_RO ||
                         c->maker == OURS_IMMUTABLE;
  const bool writes = c->want.access == DLRO_ACCESS_WRITE, never = c->want.copy == DLRO_COPY_NEVER;
  const bool layout_unmet = (c->want.layout == DLRO_LAYOUT_ROW_MAJOR && c->layout != ROW) ||
                            (c->want.layout == DLRO_LAYOUT_COLUMN_MAJOR && c->layout != COLUMN) ||
                            (c->want.layout == DLRO_LAYOUT_NON_NEGATIVE && c->layout == BACKWARD);
  const bool alignment_unmet = c->want.alignment > 4 && !c->aligned;
  const bool immutable = c->maker == OURS_IMMUTABLE || c->maker == OURS_COPIED || foreign_copied;
  *copied = c->want.copy == DLRO_COPY_ALWAYS;
  if (writes && read_only) {
    *sentence = "write access is required, and the tensor is read-only; only a copy would do, and the copy policy is NEVER";
    if (never) return DLRO_ERR_READ_ONLY;
    *copied = true;
  }
  if (writes && c->layout == CROSSING) {
    *sentence = "write access is required, and elements of the tensor share memory";
    if (never) return DLRO_ERR_COPY_NEEDED;
    *copied = true;
  }
  if (layout_unmet) {
    *sentence = c->want.layout == DLRO_LAYOUT_ROW_MAJOR      ? "row-major contiguous layout is required"
                : c->want.layout == DLRO_LAYOUT_COLUMN_MAJOR ? "column-major contiguous layout is required"
                                                             : "strides >= 0 are required, and the tensor has a negative";
    if (never) return DLRO_ERR_COPY_NEEDED;
    *copied = true;
  }
  if (alignment_unmet) {
    *sentence = "an alignment of 64 bytes is required, and the first element is at address 0x";
    if (never) return DLRO_ERR_COPY_NEEDED;
    *copied = true;
  }
  if (c->want.access == DLRO_ACCESS_IMMUTABLE && !immutable) {
    *sentence = c->maker < OURS_LENT ? "another library made the tensor" : c->maker == OURS_LENT ? "whoever lent it may"
                                                                                                 : "whoever owns it may";
    if (never) return DLRO_ERR_NOT_IMMUTABLE;
    *copied = true;
  }
  return DLRO_OK;
}

static void plan(void) {
  int tried = 0, refused = 0, copies = 0, adopted = 0, same = 0;
  uint32_t access, copy, layout, align, adopt;
  Case c;
  int i;
  CHECK((uintptr_t)numbers % 64 == 0);
  for (c.maker = 0; c.maker < MAKERS; c.maker++)
    for (c.layout = 0; c.layout < LAYOUTS; c.layout++)
      for (i = 0; i < 2 * 3 * 3 * 4 * 2 * 2; i++) {
        const char *sentence = "";
        bool copied = false, answer = false;
        Tensor *tensor, *out;
        const void *first;
        int32_t status, values[12];
        int k;
        c.aligned = i & 1, adopt = i >> 1 & 1, align = i >> 2 & 1 ? 64 : 0;
        access = (uint32_t)i / 8 % 3, copy = (uint32_t)i / 24 % 3, layout = (uint32_t)i / 72 % 4;
        c.want = wants(access, copy, layout, align);
        c.want.flags = adopt ? DLRO_IMPORT_ADOPT : 0;
        if (c.layout == CROSSING && (c.maker == OURS_LENT || c.maker == OURS_COPIED)) continue; /* cannot be made */
        reset();
        tried++;
        tensor = make(&c);
        for (k = 0; k < 12; k++) values[k] = int32_at(tensor, k);
        first = (const char *)tensor->dl_tensor.data + tensor->dl_tensor.byte_offset;
        status = expected(&c, &copied, &sentence);
        if (status != DLRO_OK) {
          const uint64_t flags = tensor->flags;
          CHECK_REFUSED(out, dlro_tensor_import(tensor, &c.want, &out), status, sentence);
          CHECK(dlro_status_is_exchange_error(status));
          CHECK(deletions == 0 && tensor->flags == flags);
          must_release(tensor);
          refused++;
          continue;
        }
        CHECK_OK(dlro_tensor_import(tensor, &c.want, &out));
        CHECK(is_address(out, first) == !copied);
        CHECK(deletions == (copied ? 1 : 0));
        for (k = 0; k < 12; k++) CHECK(int32_at(out, k) == values[k]);
        CHECK_OK(dlro_tensor_validate(out));
        if (access == DLRO_ACCESS_WRITE) CHECK(is_writable(out));
        if (access == DLRO_ACCESS_IMMUTABLE) {
          CHECK(dlro_tensor_mutability(out) == DLRO_MUTABILITY_IMMUTABLE && !is_writable(out));
        }
        if (copied) {
          CHECK(out->flags == (IS_COPIED | (access == DLRO_ACCESS_IMMUTABLE ? READ_ONLY : 0)));
          CHECK(((uintptr_t)out->dl_tensor.data + out->dl_tensor.byte_offset) % 256 == 0);
          if (access != DLRO_ACCESS_IMMUTABLE) CHECK(is_writable(out));
          CHECK_OK(layout == DLRO_LAYOUT_COLUMN_MAJOR ? dlro_tensor_is_column_major(out, &answer)
                                                      : dlro_tensor_is_row_major(out, &answer));
          CHECK(answer);
          copies++;
        } else if (out == tensor) {
          CHECK(c.maker >= OURS_LENT || !adopt);
          same++;
        } else {
          /* A foreign tensor becomes ours where that was asked for, or where it was made immutable. */
          CHECK(c.maker < OURS_LENT && (adopt || access == DLRO_ACCESS_IMMUTABLE));
          adopted++;
        }
        if (adopt || copied) {
          Tensor *shared;
          CHECK_OK(dlro_tensor_share(out, DLRO_MUTABILITY_READ_ONLY, NULL, &shared));
          CHECK(shared->flags == READ_ONLY);
          dlro_tensor_release(shared);
        }
        CHECK(deletions == (copied ? 1 : 0));
        dlro_tensor_release(out);
        CHECK(deletions == 1);
      }
  printf("       %d imports: %d as they were, %d adopted, %d copied, %d refused\n", tried, same, adopted, copies, refused);
  CHECK(same > 100 && adopted > 100 && copies > 100 && refused > 100);
  checked("cases E7, H2, D7, D9, D10: access x copy x layout x alignment x adopt of eight makers and five layouts");
}

static void immutability(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  dlro_import_options never = wants(DLRO_ACCESS_IMMUTABLE, DLRO_COPY_NEVER, 0, 0);
  dlro_import_options if_needed = wants(DLRO_ACCESS_IMMUTABLE, DLRO_COPY_IF_NEEDED, 0, 0);
  Tensor *tensor, *other, *third, *out;
  void *data;
  reset();
  CHECK_OK(dlro_tensor_new(&layout, &tensor));
  data = tensor->dl_tensor.data;
  CHECK_OK(dlro_tensor_import(tensor, &never, &out));
  CHECK(out == tensor && is_address(out, data) && out->flags == READ_ONLY);
  CHECK(dlro_tensor_mutability(out) == DLRO_MUTABILITY_IMMUTABLE && !is_writable(out));
  CHECK_REFUSED(other, dlro_tensor_share(out, DLRO_MUTABILITY_WRITABLE, NULL, &other), DLRO_ERR_READ_ONLY, "read-only");
  dlro_tensor_release(out);
  checked("access IMMUTABLE freezes a sole tensor of our own");

  CHECK_OK(dlro_tensor_new(&layout, &tensor));
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_WRITABLE, NULL, &other));
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_WRITABLE, NULL, &third));
  CHECK_REFUSED(out, dlro_tensor_import(tensor, &never, &out), DLRO_ERR_BUSY,
                "while writable tensors over it are alive; 2 are");
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE && is_writable(tensor) && tensor->flags == 0);
  dlro_tensor_release(third);
  CHECK_REFUSED(out, dlro_tensor_import(tensor, &never, &out), DLRO_ERR_BUSY, "alive; 1 are");
  data = tensor->dl_tensor.data;
  CHECK_OK(dlro_tensor_import(tensor, &if_needed, &out));
  CHECK(!is_address(out, data) && out->flags == (IS_COPIED | READ_ONLY));
  CHECK(dlro_tensor_mutability(out) == DLRO_MUTABILITY_IMMUTABLE);
  dlro_tensor_release(out);
  CHECK_OK(dlro_tensor_share(other, DLRO_MUTABILITY_READ_ONLY, NULL, &third));
  CHECK_REFUSED(out, dlro_tensor_import(third, &never, &out), DLRO_ERR_BUSY, "alive; 1 are");
  dlro_tensor_release(other);
  CHECK_OK(dlro_tensor_import(third, &never, &out));
  CHECK(out == third && dlro_tensor_mutability(out) == DLRO_MUTABILITY_IMMUTABLE);
  dlro_tensor_release(out);
  checked("access IMMUTABLE while others write: BUSY with their number, or a copy");

  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_WRITABLE, &deletions, count_release, &tensor));
  CHECK_REFUSED(out, dlro_tensor_import(tensor, &never, &out), DLRO_ERR_NOT_IMMUTABLE, "whoever lent it may still write it");
  CHECK_OK(dlro_tensor_import(tensor, &if_needed, &out));
  CHECK(deletions == 1 && !is_address(out, numbers));
  numbers[0] = 77;
  CHECK(int32_at(out, 0) == 0);
  dlro_tensor_release(out);
  tensor = foreign_tensor(layout, 0, IS_COPIED, &deletions);
  CHECK_OK(dlro_tensor_import(tensor, &never, &out));
  CHECK(out != tensor && out->flags == (IS_COPIED | READ_ONLY) && is_address(out, numbers));
  must_release(out);
  shape[0] = 0;
  tensor = foreign_tensor(layout, 0, 0, &deletions);
  CHECK_OK(dlro_tensor_import(tensor, &never, &out));
  must_release(out);
  checked("access IMMUTABLE of lent memory is refused or copied; a copy made for us is ours to freeze; nothing cannot change");
}

/* Everything, over memory and descriptors that may not be written. */
static void write_protected(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Tensor *foreign = (Tensor *)(void *)pages, *out, *ours;
  int64_t *shape = (int64_t *)(void *)(pages + 256), *stride = shape + 2;
  double *elements = (double *)(void *)(pages + 1024);
  DLPackVersion versions[2] = {{0, 8}, {1, 3}};
  dlro_export_options vouched = DLRO_EXPORT_OPTIONS_INIT;
  uint64_t checksum = 0, after = 0;
  char line[256];
  int i, kind;
  CHECK(pages != MAP_FAILED);
  for (i = 0; i < 12; i++) elements[i] = i + 0.5;
  shape[0] = 3, shape[1] = 4, stride[0] = 1, stride[1] = 3;
  *foreign = ownerless(describe(elements, dtype(kDLFloat, 64, 1), 2, shape, stride), 1, READ_ONLY);
  foreign->deleter = counting_delete;
  CHECK(mprotect(pages, page, PROT_READ) == 0);
  for (i = 0; i < (int)page / 8; i++) checksum = checksum * 31 + ((uint64_t *)(void *)pages)[i];
  reset();
  vouched.policy = DLRO_LEGACY_CONSUMER_NEVER_WRITES;
  for (kind = 0; kind < 4; kind++) {
    /* A foreign tensor, ours over the memory, one that adopted the foreign tensor, an immutable one. */
    uint32_t access, copy, layout, adopt;
    for (access = 0; access < 3; access++)
      for (copy = 0; copy < 3; copy++)
        for (layout = 0; layout < 4; layout++)
          for (adopt = 0; adopt < 2; adopt++) {
            dlro_import_options want = wants(access, copy, layout, 64), none = DLRO_IMPORT_OPTIONS_INIT;
            Tensor *tensor = foreign, *window, *target = NULL;
            const void *data;
            void *mutable_data;
            uint64_t count;
            int64_t lowest;
            size_t length;
            bool answer;
            DLManagedTensor *legacy;
            dlro_exported exported;
            DLTensor whole;
            none.flags = DLRO_IMPORT_ADOPT;
            want.flags = adopt ? DLRO_IMPORT_ADOPT : 0;
            if (kind == 1) CHECK_OK(dlro_tensor_export(&foreign->dl_tensor, 0, 1, &deletions, count_release, &tensor));
            if (kind == 2) CHECK_OK(dlro_tensor_import(foreign, &none, &tensor));
            if (kind == 3) CHECK_OK(dlro_tensor_export(&foreign->dl_tensor, 0, 2, &deletions, count_release, &tensor));
            CHECK_OK(dlro_tensor_validate(tensor));
            CHECK_OK(dlro_tensor_data(tensor, &data));
            CHECK(data == elements);
            CHECK_REFUSED(mutable_data, dlro_tensor_data_mut(tensor, &mutable_data), DLRO_ERR_READ_ONLY, "read-only");
            CHECK(dlro_tensor_mutability(tensor) != DLRO_MUTABILITY_WRITABLE);
            CHECK_OK(dlro_tensor_element_count(tensor, &count));
            CHECK_OK(dlro_tensor_nbytes(tensor, &count));
            CHECK_OK(dlro_tensor_span(tensor, &lowest, &count));
            CHECK_OK(dlro_tensor_is_row_major(tensor, &answer));
            CHECK_OK(dlro_tensor_is_column_major(tensor, &answer));
            CHECK_OK(dlro_tensor_is_overlapping(tensor, &answer));
            CHECK_OK(dlro_tensor_describe(tensor, line, sizeof line, &length));
            CHECK_OK(dlro_tensor_copy(tensor, &target));
            CHECK(target->flags == IS_COPIED && is_writable(target));
            CHECK_OK(dlro_tensor_copy_into(tensor, target));
            CHECK_STATUS(dlro_tensor_copy_into(target, tensor), DLRO_ERR_READ_ONLY, "read-only");
            CHECK_OK(dlro_tensor_data_mut(target, &mutable_data));
            memset(mutable_data, 0, 8);
            dlro_tensor_release(target);
            whole = tensor->dl_tensor;
            CHECK_REFUSED(out, dlro_tensor_share(tensor, 0, &whole, &out),
                          kind ? DLRO_ERR_READ_ONLY : DLRO_ERR_ARGUMENT, "");
            for (i = 1; i < 3; i++) {
              if (dlro_tensor_share(tensor, (uint32_t)i, &whole, &window) == DLRO_OK) dlro_tensor_release(window);
            }
            CHECK(dlro_tensor_freeze(tensor) == (kind == 3 ? DLRO_OK : kind ? DLRO_ERR_NOT_IMMUTABLE : DLRO_ERR_ARGUMENT));
            CHECK_REFUSED(legacy, dlro_legacy_export(tensor, 0, &legacy), DLRO_ERR_READ_ONLY, "the legacy struct");
            CHECK_REFUSED(exported, dlro_tensor_export_for(tensor, NULL, NULL, &exported), DLRO_ERR_READ_ONLY, "legacy");
            if (layout == 0) {
              CHECK_OK(dlro_tensor_export_for(tensor, &versions[adopt], &vouched, &exported));
              if (exported.legacy != NULL) CHECK_OK(dlro_legacy_import(exported.legacy, 0, NULL, &tensor));
              if (exported.versioned != NULL) tensor = exported.versioned;
              CHECK(!is_writable(tensor));
            } else {
              CHECK_OK(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
              CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_WRITABLE, NULL, &tensor));
              CHECK(!is_writable(tensor));
            }
            CHECK(deletions == 0);
            if (dlro_tensor_import(tensor, &want, &ours) != DLRO_OK) {
              CHECK(ours == NULL && deletions == 0 && copy == DLRO_COPY_NEVER);
              ours = tensor;
            }
            dlro_tensor_release(ours);
            CHECK(deletions == 1);
            deletions = 0;
          }
  }
  for (i = 0; i < (int)page / 8; i++) after = after * 31 + ((uint64_t *)(void *)pages)[i];
  CHECK(after == checksum);
  CHECK(munmap(pages, page) == 0);
  checked("cases A12, A22: every function on a descriptor and elements in a PROT_READ page: no SIGSEGV, no way to write");
}

static void broadcast(void) {
  int64_t one = 1, shape[2] = {2, 3}, zeros[2] = {0, 0};
  Tensor *foreign = foreign_tensor(describe(&one, dtype(kDLInt, 64, 1), 2, shape, zeros), 0, READ_ONLY, &deletions), *out;
  dlro_import_options write = wants(DLRO_ACCESS_WRITE, DLRO_COPY_NEVER, 0, 0);
  int i;
  deletions = 0;
  CHECK_REFUSED(out, dlro_tensor_import(foreign, &write, &out), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_OK(dlro_tensor_import(foreign, NULL, &out));
  for (i = 0; i < 6; i++) CHECK(*(const int64_t *)element(out, i) == 1);
  must_release(out);
  checked("case A7: a read-only broadcast view is read, and refused to a writer for being read-only first");
}

int main(void) {
  i32 = dtype(kDLInt, 32, 1);
  aliases();
  failures();
  read_only_to_writer();
  strides();
  other_major();
  no_deleter();
  flags_survive();
  options();
  devices();
  plan();
  immutability();
  write_protected();
  broadcast();
  return 0;
}
