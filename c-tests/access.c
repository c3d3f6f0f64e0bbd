/* Chapter access: what a tensor is, and the pointer to its elements for those who may have it. */
#include "producer.h"
#include <sys/mman.h>
#include <unistd.h>

static float memory[64];

/* Every query: fails with zeroed outputs, whatever was in them, or answers the status. */
static int32_t q_validate(Tensor *t) { return dlro_tensor_validate(t); }
#define QUERY(function, type)                                         \
  static int32_t q_##function(Tensor *t) {                            \
    type out;                                                         \
    int32_t status;                                                   \
    memset(&out, 0xA5, sizeof out);                                   \
    status = dlro_tensor_##function(t, &out);                         \
    if (status != DLRO_OK) CHECK(all_zero(&out, sizeof out));         \
    CHECK(dlro_tensor_##function(t, NULL) == DLRO_ERR_NULL);          \
    CHECK(strcmp(dlro_last_error_message(), "out is NULL") == 0);     \
    return status == DLRO_OK ? DLRO_OK : dlro_tensor_##function(t, &out); \
  }
QUERY(data, const void *)
QUERY(data_mut, void *)
QUERY(element_count, uint64_t)
QUERY(nbytes, uint64_t)
QUERY(is_row_major, bool)
QUERY(is_column_major, bool)
QUERY(is_overlapping, bool)
static int32_t q_span(Tensor *t) {
  int64_t lowest;
  uint64_t nbytes;
  int32_t status;
  memset(&lowest, 0xA5, sizeof lowest);
  memset(&nbytes, 0xA5, sizeof nbytes);
  status = dlro_tensor_span(t, &lowest, &nbytes);
  if (status != DLRO_OK) CHECK(lowest == 0 && nbytes == 0);
  CHECK_STATUS(dlro_tensor_span(t, NULL, &nbytes), DLRO_ERR_NULL, "lowest is NULL");
  CHECK_STATUS(dlro_tensor_span(t, &lowest, NULL), DLRO_ERR_NULL, "nbytes is NULL");
  return dlro_tensor_span(t, &lowest, &nbytes);
}
static int32_t q_describe(Tensor *t) {
  char line[512];
  size_t length;
  int32_t status;
  memset(&length, 0xA5, sizeof length);
  status = dlro_tensor_describe(t, line, sizeof line, &length);
  if (status != DLRO_OK) CHECK(length == 0);
  CHECK_STATUS(dlro_tensor_describe(t, line, sizeof line, NULL), DLRO_ERR_NULL, "length is NULL");
  CHECK_STATUS(dlro_tensor_describe(t, NULL, 1, &length), DLRO_ERR_NULL, "dst is NULL");
  return dlro_tensor_describe(t, line, sizeof line, &length);
}

static const struct {
  const char *name;
  int32_t (*ask)(Tensor *);
} queries[] = {{"validate", q_validate}, {"data", q_data}, {"data_mut", q_data_mut},
               {"element_count", q_element_count}, {"nbytes", q_nbytes}, {"span", q_span},
               {"is_row_major", q_is_row_major}, {"is_column_major", q_is_column_major},
               {"is_overlapping", q_is_overlapping}, {"describe", q_describe}};

#define EVERY_QUERY(tensor, expected, text) \
  do {                                      \
    int each;                               \
    for (each = 0; each < LENGTH(queries); each++) CHECK_STATUS(queries[each].ask(tensor), expected, text); \
  } while (0)

static void statuses(void) {
  int64_t shape[3] = {2, 3, 4}, negative[3] = {2, 3, -4}, huge[2] = {(int64_t)1 << 32, (int64_t)1 << 32};
  int64_t far[3] = {INT64_MAX / 2, 1, 1}, back[3] = {-1000000, 1, 1};
  const DLTensor good = describe(memory, dtype(kDLFloat, 32, 1), 3, shape, NULL);
  Tensor tensor = ownerless(good, 0, 0);
  EVERY_QUERY(&tensor, DLRO_OK, "");
  EVERY_QUERY(NULL, DLRO_ERR_NULL, "tensor is NULL");
  tensor.dl_tensor.shape = NULL;
  EVERY_QUERY(&tensor, DLRO_ERR_NULL, "shape is NULL with ndim 3; only ndim 0 needs no shape");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.data = NULL;
  EVERY_QUERY(&tensor, DLRO_ERR_NULL, "data is NULL, and the elements take 96 bytes");
  checked("every query: DLRO_ERR_NULL for tensor, shape, data and outputs; outputs zeroed");

  tensor = ownerless(good, 0, 0), tensor.version.major = 2;
  EVERY_QUERY(&tensor, DLRO_ERR_VERSION, "DLPack version 2.0; this library knows major version 1");
  tensor.version.major = 0, tensor.version.minor = 8;
  EVERY_QUERY(&tensor, DLRO_ERR_VERSION, "DLPack version 0.8");
  tensor.version.major = UINT32_MAX, tensor.version.minor = UINT32_MAX;
  EVERY_QUERY(&tensor, DLRO_ERR_VERSION, "DLPack version 4294967295.4294967295");
  tensor = ownerless(good, 0, 0), tensor.version.minor = 9;
  tensor.dl_tensor.strides = back, back[0] = 12, back[1] = 4;
  EVERY_QUERY(&tensor, DLRO_OK, "");
  checked("every query: another major version is refused, a newer minor is not");

  tensor = ownerless(good, 0, 0), tensor.dl_tensor.dtype = dtype(kDLOpaqueHandle, 64, 1);
  EVERY_QUERY(&tensor, DLRO_ERR_DTYPE, "(code 3, bits 64, lanes 1) is an opaque handle");
  tensor.dl_tensor.dtype = dtype(200, 8, 1);
  EVERY_QUERY(&tensor, DLRO_ERR_DTYPE, "(code 200, bits 8, lanes 1) has a code that DLPack 1.3 does not define");
  checked("case C5, every query: unknown dtype codes and opaque handles");

  tensor = ownerless(good, 0, 0), tensor.dl_tensor.ndim = -1;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "ndim is -1; it must be from 0 to 1024");
  tensor.dl_tensor.ndim = 0x7fffffff;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "ndim is 2147483647");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.shape = negative;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "shape[2] is -4; dimensions must be >= 0");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.shape = huge, tensor.dl_tensor.ndim = 2;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "the tensor's element count or extent does not fit");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.strides = far;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "extent in bytes does not fit");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.byte_offset = UINT64_MAX - 3;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "byte_offset 18446744073709551612 + the tensor's extent leaves");
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.strides = back, back[0] = -1000000;
  tensor.dl_tensor.data = (void *)4096;
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "data 0x1000 + byte_offset 0");
  checked("case D3, every query: ndim, dimensions, overflow, wrap");

  /* Both faults at once: the range is checked before anything that follows from it. */
  tensor = ownerless(good, 0, 0), tensor.dl_tensor.data = (void *)(UINTPTR_MAX - 2);
  EVERY_QUERY(&tensor, DLRO_ERR_BOUNDS, "leaves the address space");
  {
    Tensor *out;
    dlro_import_options aligned = DLRO_IMPORT_OPTIONS_INIT;
    aligned.alignment = 64, aligned.copy = DLRO_COPY_NEVER;
    CHECK_REFUSED(out, dlro_tensor_import(&tensor, &aligned, &out), DLRO_ERR_BOUNDS, "leaves the address space");
  }
  checked("rule validation: range before alignment");
}

static void strict(void) {
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1}, ones[2] = {1, 1}, none[2] = {0, 3};
  const int host[] = {kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged};
  uint32_t minor;
  int i;
  for (minor = 0; minor < 5; minor++) {
    Tensor tensor = ownerless(describe(memory, dtype(kDLFloat, 32, 1), 2, shape, NULL), minor, 0);
    char expected[32];
    bool row_major = false;
    snprintf(expected, sizeof expected, "version 1.%u", (unsigned)minor);
    CHECK_STATUS(dlro_tensor_validate(&tensor), minor < 2 ? DLRO_OK : DLRO_ERR_LAYOUT, expected);
    CHECK_OK(dlro_tensor_is_row_major(&tensor, &row_major));
    CHECK(row_major);
    tensor.dl_tensor.shape = none;
    CHECK((dlro_tensor_validate(&tensor) == DLRO_OK) == (minor < 2));
    tensor.dl_tensor.shape = ones;
    CHECK((dlro_tensor_validate(&tensor) == DLRO_OK) == (minor < 2));
    tensor.dl_tensor.ndim = 0;
    CHECK_OK(dlro_tensor_validate(&tensor));
    tensor.dl_tensor.ndim = 2, tensor.dl_tensor.shape = shape, tensor.dl_tensor.strides = strides;
    CHECK_OK(dlro_tensor_validate(&tensor));
  }
  checked("case D1: strict validation refuses NULL strides since 1.2, queries read them as row-major");
  for (i = 0; i < 4; i++) {
    Tensor tensor = ownerless(
        on_device(describe(memory, dtype(kDLFloat, 32, 1), 2, shape, strides), host[i], 3), 0, 0);
    const void *data;
    CHECK_STATUS(dlro_tensor_validate(&tensor), DLRO_ERR_DEVICE, "id 3) has an id, and host memory has none");
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    tensor.dl_tensor.device.device_id = 0;
    CHECK_OK(dlro_tensor_validate(&tensor));
  }
  checked("case G1: strict validation refuses host devices with an id, queries do not mind");
}

/* A version that we do not know: behind its first 32 bytes there is nothing. */
static void other_major(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Tensor *tensor = (Tensor *)(void *)(pages + page - 32);
  int32_t i;
  CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
  tensor->version.major = 2;
  tensor->version.minor = 7;
  EVERY_QUERY(tensor, DLRO_ERR_VERSION, "DLPack version 2.7");
  for (i = 0; i < 2; i++) {
    tensor->flags = i ? READ_ONLY | UNKNOWN_FLAG : UNKNOWN_FLAG;
    CHECK(dlro_tensor_mutability(tensor) == (i ? DLRO_MUTABILITY_READ_ONLY : DLRO_MUTABILITY_WRITABLE));
  }
  dlro_tensor_release(tensor);
  CHECK(munmap(pages, 2 * page) == 0);
  checked("rule version: of another major only version, context, deleter and flags are read");
}

static void pointers(void) {
  int64_t shape[1] = {4}, stride[1] = {-1}, zero[1] = {0}, none[1] = {0};
  const int handles[] = {kDLOpenCL, kDLVulkan, kDLMetal, kDLWebGPU};
  const int devices[] = {kDLCUDA, kDLROCM, kDLExtDev, kDLCUDAManaged, 1000, -1};
  uint64_t flags;
  const void *data;
  void *mutable_data;
  int i;
  for (flags = 0; flags < 16; flags++) {
    Tensor tensor = ownerless(describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL), 1,
                              (flags & 7) | (flags & 8 ? UNKNOWN_FLAG : 0));
    tensor.dl_tensor.byte_offset = 4;
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    CHECK(data == memory + 1);
    if (flags & READ_ONLY) {
      char expected[64];
      snprintf(expected, sizeof expected, "read-only (flags 0x%llx)", (unsigned long long)tensor.flags);
      CHECK_REFUSED(mutable_data, dlro_tensor_data_mut(&tensor, &mutable_data), DLRO_ERR_READ_ONLY, expected);
      CHECK(dlro_tensor_mutability(&tensor) == DLRO_MUTABILITY_READ_ONLY);
    } else {
      CHECK_OK(dlro_tensor_data_mut(&tensor, &mutable_data));
      CHECK(mutable_data == memory + 1);
      CHECK(dlro_tensor_mutability(&tensor) == DLRO_MUTABILITY_WRITABLE);
    }
  }
  CHECK(dlro_tensor_mutability(NULL) == DLRO_MUTABILITY_READ_ONLY);
  checked("cases A2, E1, J4: data + byte_offset for whoever reads, for writers only without READ_ONLY, any other flags");
  {
    Tensor tensor = ownerless(describe(memory + 3, dtype(kDLFloat, 32, 1), 1, shape, stride), 0, 0);
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    CHECK(data == memory + 3);
    CHECK_OK(dlro_tensor_data_mut(&tensor, &mutable_data));
    CHECK(mutable_data == memory + 3);
    tensor.dl_tensor.strides = zero;
    CHECK_REFUSED(mutable_data, dlro_tensor_data_mut(&tensor, &mutable_data), DLRO_ERR_LAYOUT, "share memory");
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    tensor.flags = READ_ONLY;
    CHECK_REFUSED(mutable_data, dlro_tensor_data_mut(&tensor, &mutable_data), DLRO_ERR_READ_ONLY, "flags 0x1");
    tensor = ownerless(describe((void *)1, dtype(kDLFloat, 32, 1), 1, none, stride), 0, 0);
    tensor.dl_tensor.byte_offset = UINT64_MAX;
    data = &data;
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    CHECK(data == NULL);
    mutable_data = &data;
    CHECK_OK(dlro_tensor_data_mut(&tensor, &mutable_data));
    CHECK(mutable_data == NULL);
  }
  checked("cases D4, D16: the first element, not the lowest; NULL without elements; no writer where elements overlap");
  for (i = 0; i < LENGTH(handles); i++) {
    Tensor tensor = ownerless(
        on_device(describe((void *)UINTPTR_MAX, dtype(kDLFloat, 32, 1), 1, shape, NULL), handles[i], 1), 0, 0);
    char expected[32];
    tensor.dl_tensor.byte_offset = 1 << 20;
    snprintf(expected, sizeof expected, "(type %d, id 1)", handles[i]);
    CHECK_OK(dlro_tensor_validate(&tensor));
    CHECK_REFUSED(data, dlro_tensor_data(&tensor, &data), DLRO_ERR_DEVICE, expected);
    CHECK_REFUSED(mutable_data, dlro_tensor_data_mut(&tensor, &mutable_data), DLRO_ERR_DEVICE, expected);
    CHECK_OK(q_nbytes(&tensor));
    CHECK_OK(q_describe(&tensor));
    tensor.dl_tensor.byte_offset = UINT64_MAX - 2;
    CHECK_STATUS(dlro_tensor_validate(&tensor), DLRO_ERR_BOUNDS, "byte_offset 18446744073709551613");
  }
  checked("rule byte_offset: no arithmetic on handles (OpenCL, Vulkan, Metal, WebGPU)");
  for (i = 0; i < LENGTH(devices); i++) {
    Tensor tensor = ownerless(
        on_device(describe((void *)0x1000, dtype(kDLFloat, 32, 1), 1, shape, NULL), devices[i], 0), 0, 0);
    tensor.dl_tensor.byte_offset = 8;
    EVERY_QUERY(&tensor, DLRO_OK, "");
    CHECK_OK(dlro_tensor_data(&tensor, &data));
    CHECK(data == (void *)0x1008);
  }
  checked("case G4: addresses of other devices are given, not followed");
}

/* What shapes, strides and dtypes come to. */
static void measures(void) {
  static const struct {
    const char *what;
    int ndim;
    int64_t shape[3], strides[3];
    int code, bits, lanes;
    uint64_t flags, count, nbytes;
    int64_t lowest;
    uint64_t span;
    bool row_major, column_major, overlapping;
  } rows[] = {
      {"row-major", 2, {3, 4}, {4, 1}, 2, 32, 1, 0, 12, 48, 0, 48, true, false, false},
      {"column-major", 2, {3, 4}, {1, 3}, 2, 32, 1, 0, 12, 48, 0, 48, false, true, false},
      {"1-d", 1, {5}, {1}, 0, 8, 1, 0, 5, 5, 0, 5, true, true, false},
      {"D14 strided", 1, {3}, {4}, 2, 32, 1, 0, 3, 12, 0, 36, false, false, false},
      {"D14 broadcast", 1, {1000}, {0}, 2, 32, 1, 0, 1000, 4000, 0, 4, false, false, true},
      {"D16 broadcast rows", 2, {2, 3}, {0, 1}, 2, 32, 1, 0, 6, 24, 0, 12, false, false, true},
      {"D16 crossing", 3, {2, 2, 2}, {3, 2, 1}, 2, 32, 1, 0, 8, 32, 0, 28, false, false, true},
      {"D16 reversed", 1, {4}, {-1}, 2, 32, 1, 0, 4, 16, -12, 16, false, false, false},
      {"D6 reversed rows", 2, {3, 4}, {4, -1}, 2, 64, 1, 0, 12, 96, -24, 96, false, false, false},
      {"both reversed", 2, {3, 4}, {-4, -1}, 2, 64, 1, 0, 12, 96, -88, 96, false, false, false},
      {"crossing, yet apart", 2, {2, 2}, {3, 2}, 0, 8, 1, 0, 4, 4, 0, 6, false, false, false},
      {"crossing, yet apart 3x3", 2, {3, 3}, {2, 3}, 0, 8, 1, 0, 9, 9, 0, 11, false, false, false},
      {"crossing 4x3", 2, {4, 3}, {2, 3}, 0, 8, 1, 0, 12, 12, 0, 13, false, false, true},
      {"crossing by sign", 2, {2, 2}, {1, -1}, 0, 8, 1, 0, 4, 4, -1, 3, false, false, true},
      {"D11 ones", 3, {1, 1, 2}, {2, 2, 1}, 2, 32, 1, 0, 2, 8, 0, 8, true, true, false},
      {"D11 neither", 2, {2, 2}, {4, 2}, 2, 32, 1, 0, 4, 16, 0, 28, false, false, false},
      {"D10 transposed", 2, {2, 2}, {1, 2}, 0, 32, 1, 0, 4, 16, 0, 16, false, true, false},
      {"ones with wild strides", 3, {1, 3, 1}, {INT64_MIN, 1, INT64_MAX}, 0, 32, 1, 0, 3, 12, 0, 12, true, true, false},
      {"one with stride 0", 1, {1}, {0}, 0, 32, 1, 0, 1, 4, 0, 4, true, true, false},
      {"gaps beside a one with stride 0", 2, {1, 3}, {0, 2}, 0, 32, 1, 0, 3, 12, 0, 20, false, false, false},
      {"as large as it gets", 1, {INT64_MAX}, {0}, 1, 8, 1, 0, INT64_MAX, INT64_MAX, 0, 1, false, false, true},
      {"2^62 bytes", 1, {(int64_t)1 << 60}, {0}, 0, 32, 1, 0, (uint64_t)1 << 60, (uint64_t)1 << 62, 0, 4, false, false, true},
      {"empty", 2, {0, 3}, {3, 1}, 0, 32, 1, 0, 0, 0, 0, 0, true, true, false},
      {"empty with wild strides", 2, {3, 0}, {0, INT64_MIN}, 0, 32, 1, 0, 0, 0, 0, 0, true, true, false},
      {"empty among huge", 3, {INT64_MAX, 0, INT64_MAX}, {INT64_MAX, 2, 3}, 5, 128, 9, 0, 0, 0, 0, 0, true, true, false},
      {"0-d", 0, {-1}, {-1}, 2, 64, 1, 0, 1, 8, 0, 8, true, true, false},
      {"F3 complex64", 1, {2}, {1}, 5, 64, 1, 0, 2, 16, 0, 16, true, true, false},
      {"F3 lanes", 1, {2}, {3}, 2, 32, 4, 0, 2, 32, 0, 64, false, false, false},
      {"x87", 1, {2}, {1}, 2, 128, 1, 0, 2, 32, 0, 32, true, true, false},
      {"F5 float4 packed", 1, {3}, {1}, 17, 4, 1, 0, 3, 2, 0, 2, true, true, false},
      {"F5 float4 padded", 1, {3}, {1}, 17, 4, 1, PADDED, 3, 3, 0, 3, true, true, false},
      {"F5 float6 packed", 1, {4}, {1}, 15, 6, 1, 0, 4, 3, 0, 3, true, true, false},
      {"F5 float6 padded", 1, {4}, {1}, 16, 6, 1, PADDED, 4, 4, 0, 4, true, true, false},
      {"float4 two lanes", 1, {3}, {1}, 17, 4, 2, 0, 3, 3, 0, 3, true, true, false},
      {"float4 three lanes padded", 1, {3}, {1}, 17, 4, 3, PADDED, 3, 6, 0, 6, true, true, false},
      {"int4 2x3 rounds up once", 2, {3, 3}, {3, 1}, 0, 4, 1, 0, 9, 5, 0, 5, true, false, false},
      {"uint2", 1, {5}, {1}, 1, 2, 1, 0, 5, 2, 0, 2, true, true, false},
      {"float4 strided", 1, {3}, {2}, 17, 4, 1, 0, 3, 2, 0, 3, false, false, false},
      {"float4 reversed", 1, {3}, {-1}, 17, 4, 1, 0, 3, 2, -1, 2, false, false, false},
      {"padding says nothing of whole bytes", 1, {3}, {1}, 2, 32, 1, PADDED, 3, 12, 0, 12, true, true, false},
  };
  int i;
  for (i = 0; i < LENGTH(rows); i++) {
    int64_t shape[3], strides[3], lowest;
    uint64_t count, nbytes, span;
    bool row_major, column_major, overlapping;
    const bool no_axes = rows[i].ndim == 0;
    Tensor tensor;
    memcpy(shape, rows[i].shape, sizeof shape);
    memcpy(strides, rows[i].strides, sizeof strides);
    tensor = ownerless(describe((char *)(uintptr_t)0x10000, dtype(rows[i].code, rows[i].bits, rows[i].lanes),
                                rows[i].ndim, no_axes ? (int64_t *)1 : shape, no_axes ? (int64_t *)1 : strides),
                       1, rows[i].flags);
    CHECK_OK(dlro_tensor_validate(&tensor));
    CHECK_OK(dlro_tensor_element_count(&tensor, &count));
    CHECK_OK(dlro_tensor_nbytes(&tensor, &nbytes));
    CHECK_OK(dlro_tensor_span(&tensor, &lowest, &span));
    CHECK_OK(dlro_tensor_is_row_major(&tensor, &row_major));
    CHECK_OK(dlro_tensor_is_column_major(&tensor, &column_major));
    CHECK_OK(dlro_tensor_is_overlapping(&tensor, &overlapping));
    if (count != rows[i].count || nbytes != rows[i].nbytes || lowest != rows[i].lowest || span != rows[i].span ||
        row_major != rows[i].row_major || column_major != rows[i].column_major ||
        overlapping != rows[i].overlapping) {
      fprintf(stderr, "row \"%s\": count %llu nbytes %llu lowest %lld span %llu row-major %d column-major %d overlap %d\n",
              rows[i].what, (unsigned long long)count, (unsigned long long)nbytes, (long long)lowest,
              (unsigned long long)span, row_major, column_major, overlapping);
      exit(1);
    }
    check_count += 7;
  }
  checked("cases D6, D11, D14, D16, F3, F5: count, bytes, span, contiguity, overlap of 40 layouts");

  {
    int64_t shape[3] = {2, 3, 4}, transposed[2] = {2, 2};
    Tensor tensor = ownerless(describe(memory, dtype(kDLFloat, 32, 1), 3, shape, NULL), 0, 0);
    bool answer = false;
    int64_t lowest;
    uint64_t span;
    CHECK_OK(dlro_tensor_is_row_major(&tensor, &answer));
    CHECK(answer);
    CHECK_OK(dlro_tensor_is_column_major(&tensor, &answer));
    CHECK(!answer);
    CHECK_OK(dlro_tensor_is_overlapping(&tensor, &answer));
    CHECK(!answer);
    CHECK_OK(dlro_tensor_span(&tensor, &lowest, &span));
    CHECK(lowest == 0 && span == 96);
    tensor.dl_tensor.ndim = 2, tensor.dl_tensor.shape = transposed, transposed[0] = 1;
    CHECK_OK(dlro_tensor_is_column_major(&tensor, &answer));
    CHECK(answer);
    checked("case D2: NULL strides are not dereferenced, and mean row-major");
  }
  {
    /* 40 wide axes that all cross each other: an answer in reasonable time, and not a wrong "no". */
    int64_t shape[40], strides[40];
    Tensor tensor = ownerless(describe((void *)0x10000, dtype(kDLInt, 8, 1), 40, shape, strides), 0, 0);
    bool answer = false;
    int i;
    for (i = 0; i < 40; i++) shape[i] = 2, strides[i] = 1000003 + 7919 * i;
    CHECK_OK(dlro_tensor_is_overlapping(&tensor, &answer));
    CHECK(answer);
    for (i = 0; i < 40; i++) strides[i] = (int64_t)1 << i;
    CHECK_OK(dlro_tensor_is_overlapping(&tensor, &answer));
    CHECK(!answer);
    checked("overlap of 40 axes: crossing ones yes, nested ones no");
  }
}

static bool dtype_exists(int code, int bits, int lanes) {
  if (lanes == 0) return false;
  switch (code) {
    case kDLInt:
    case kDLUInt: return bits == 2 || bits == 4 || bits == 8 || bits == 16 || bits == 32 || bits == 64;
    case kDLFloat: return bits == 16 || bits == 32 || bits == 64 || bits == 128;
    case kDLBfloat: return bits == 16;
    case kDLComplex: return bits == 32 || bits == 64 || bits == 128;
    case kDLBool: return bits == 8;
    case kDLFloat6_e2m3fn:
    case kDLFloat6_e3m2fn: return bits == 6;
    case kDLFloat4_e2m1fn: return bits == 4;
    default: return code >= kDLFloat8_e3m4 && code <= kDLFloat8_e8m0fnu && bits == 8;
  }
}

static void dtypes(void) {
  static const char *const names[] = {"int", "uint", "float", "", "bfloat16", "complex", "bool", "float8_e3m4",
                                      "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
                                      "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn",
                                      "float6_e3m2fn", "float4_e2m1fn"};
  const int codes[] = {18, 19, 100, 200, 255}, lane_counts[] = {0, 1, 2, 4, 65535};
  int c, bits, l;
  for (c = 0; c < 18 + LENGTH(codes); c++) {
    const int code = c < 18 ? c : codes[c - 18];
    for (bits = 0; bits < 256; bits++) {
      for (l = 0; l < LENGTH(lane_counts); l++) {
        const int lanes = lane_counts[l];
        const DLDataType type = dtype(code, bits, lanes);
        uint32_t width;
        char name[40], expected[64];
        size_t length;
        memset(&width, 0xA5, sizeof width);
        memset(&length, 0xA5, sizeof length);
        if (dtype_exists(code, bits, lanes)) {
          CHECK_OK(dlro_dtype_bits(type, &width));
          CHECK(width == (uint32_t)(bits * lanes));
          CHECK_OK(dlro_dtype_describe(type, name, sizeof name, &length));
          snprintf(expected, sizeof expected, "%s", names[code]);
          if (code < 3 || code == kDLComplex) snprintf(expected + strlen(expected), 16, "%d", bits);
          if (lanes != 1) snprintf(expected + strlen(expected), 16, "x%d", lanes);
          CHECK(strcmp(name, expected) == 0 && length == strlen(expected));
        } else {
          snprintf(expected, sizeof expected, "dtype (code %d, bits %d, lanes %d) ", code, bits, lanes);
          CHECK_REFUSED(width, dlro_dtype_bits(type, &width), DLRO_ERR_DTYPE, expected);
          if (l == 1) {
            CHECK_REFUSED(length, dlro_dtype_describe(type, name, sizeof name, &length), DLRO_ERR_DTYPE, expected);
          }
        }
      }
    }
  }
  checked("cases F1-F8: which dtypes exist, their bits and names, of 23 codes x 256 widths x 5 lane counts");
  {
    uint32_t width;
    size_t length;
    char name[8];
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(6, 1, 1), &width), DLRO_ERR_DTYPE, "is not a bool");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(1, 1, 1), &width), DLRO_ERR_DTYPE, "its code has no such width");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(2, 8, 1), &width), DLRO_ERR_DTYPE, "has a code of its own");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(10, 16, 1), &width), DLRO_ERR_DTYPE, "float8 codes need 8 bits");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(15, 8, 1), &width), DLRO_ERR_DTYPE, "float6 codes need 6 bits");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(17, 8, 1), &width), DLRO_ERR_DTYPE, "float4 needs 4 bits");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(2, 0, 1), &width), DLRO_ERR_DTYPE, "has no bits");
    CHECK_REFUSED(width, dlro_dtype_bits(dtype(2, 32, 0), &width), DLRO_ERR_DTYPE, "has no lanes");
    CHECK_STATUS(dlro_dtype_bits(dtype(2, 32, 1), NULL), DLRO_ERR_NULL, "out is NULL");
    CHECK_STATUS(dlro_dtype_describe(dtype(2, 32, 1), name, 8, NULL), DLRO_ERR_NULL, "length is NULL");
    CHECK_REFUSED(length, dlro_dtype_describe(dtype(2, 32, 1), NULL, 8, &length), DLRO_ERR_NULL, "dst is NULL");
    CHECK_OK(dlro_dtype_describe(dtype(2, 32, 1), NULL, 0, &length));
    CHECK(length == 7);
    memset(name, '#', sizeof name);
    CHECK_OK(dlro_dtype_describe(dtype(2, 32, 1), name, 7, &length));
    CHECK(length == 7 && strcmp(name, "float3") == 0 && name[7] == '#');
    CHECK_OK(dlro_dtype_describe(dtype(2, 32, 1), name, 1, &length));
    CHECK(length == 7 && name[0] == 0 && name[1] == 'l');
    CHECK_OK(dlro_dtype_describe(dtype(2, 32, 1), name, 8, &length));
    CHECK(strcmp(name, "float32") == 0);
  }
  checked("cases F1, F2, F5: why a dtype is none; snprintf rules");
}

static void described(void) {
  int64_t shape[2] = {3, 4}, strides[2] = {4, -1};
  Tensor tensor = ownerless(on_device(describe(memory, dtype(kDLFloat, 64, 1), 2, shape, strides), 1, 0), 3, 0);
  static const char *const parts[] = {"float64", "[3, 4]", "[4, -1]", "CPU:0", "writable", "1.3", "+24", "96 bytes"};
  char line[256], shorter[256];
  size_t length, capacity, i;
  tensor.dl_tensor.byte_offset = 24;
  CHECK_OK(dlro_tensor_describe(&tensor, line, sizeof line, &length));
  CHECK(length == strlen(line) && strchr(line, '\n') == NULL);
  for (i = 0; i < sizeof parts / sizeof parts[0]; i++) CHECK(strstr(line, parts[i]) != NULL);
  snprintf(shorter, sizeof shorter, "%p", tensor.dl_tensor.data);
  CHECK(strstr(line, shorter) != NULL);
  for (capacity = 0; capacity <= length + 2; capacity++) {
    size_t whole = 0;
    memset(shorter, '#', sizeof shorter);
    CHECK_OK(dlro_tensor_describe(&tensor, capacity ? shorter : NULL, capacity, &whole));
    CHECK(whole == length && shorter[capacity] == '#');
    if (capacity > 0) {
      const size_t written = capacity - 1 < length ? capacity - 1 : length;
      CHECK(memcmp(shorter, line, written) == 0 && shorter[written] == 0);
    }
  }
  tensor.flags = READ_ONLY | IS_COPIED | PADDED;
  tensor.dl_tensor.device.device_type = (DLDeviceType)99;
  tensor.dl_tensor.device.device_id = 5;
  tensor.dl_tensor.strides = NULL;
  CHECK_OK(dlro_tensor_describe(&tensor, line, sizeof line, &length));
  CHECK(strstr(line, "read-only") != NULL && strstr(line, "copied") != NULL && strstr(line, "padded") != NULL);
  CHECK(strstr(line, "device type 99:5") != NULL && strstr(line, "row-major") != NULL);
  checked("describe: one line with every value, cut as snprintf cuts");
}

static void host(void) {
  const int32_t others[] = {INT32_MIN, INT32_MAX, 1000, 257, 65537};
  int32_t type;
  int i;
  for (type = -5; type < 40; type++) CHECK(dlro_device_is_host(type) == (type == 1 || type == 3 || type == 11));
  for (i = 0; i < LENGTH(others); i++) CHECK(!dlro_device_is_host(others[i]));
  checked("case G2: host-readable are CPU, CUDAHost and ROCMHost");
}

int main(void) {
  statuses();
  strict();
  other_major();
  pointers();
  measures();
  dtypes();
  described();
  host();
  return 0;
}
