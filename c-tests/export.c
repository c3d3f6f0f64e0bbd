/* Chapter export: a producer makes managed tensors. */
#include "producer.h"
#include <sys/mman.h>
#include <unistd.h>

/* Failed allocations are for the library to handle, not for ASan. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static float memory[64];
static int released;

static const uint32_t mutabilities[] = {DLRO_MUTABILITY_WRITABLE, DLRO_MUTABILITY_READ_ONLY,
                                        DLRO_MUTABILITY_IMMUTABLE};

static dlro_status try_export(DLTensor layout, uint64_t flags, uint32_t mutability, Tensor **out) {
  return dlro_tensor_export(&layout, flags, mutability, &released, count_release, out);
}

static Tensor *must_export(DLTensor layout, uint64_t flags, uint32_t mutability) {
  Tensor *tensor = NULL;
  CHECK_OK(try_export(layout, flags, mutability, &tensor));
  CHECK(tensor != NULL && tensor->deleter != NULL && tensor->version.major == 1);
  return tensor;
}

static void must_release(Tensor *tensor) {
  const int before = released;
  dlro_tensor_release(tensor);
  CHECK(released == before + 1);
}

static void fields(void) {
  int64_t shape[3] = {2, 3, 4}, strides[3] = {-12, 1, 3};
  const DLDataType f32 = dtype(kDLFloat, 32, 1);
  DLTensor layout = describe(memory + 12, f32, 3, shape, NULL);
  Tensor *tensor;
  unsigned i;
  for (i = 0; i < 3; i++) {
    tensor = must_export(layout, 0, mutabilities[i]);
    CHECK(tensor->flags == (i == 0 ? 0 : READ_ONLY));
    CHECK(dlro_tensor_mutability(tensor) == mutabilities[i]);
    CHECK(is_writable(tensor) == (i == 0));
    must_release(tensor);
  }
  checked("case A6: mutability becomes the READ_ONLY flag, and is remembered beyond it");

  layout.byte_offset = 8;
  tensor = must_export(layout, 0, DLRO_MUTABILITY_WRITABLE);
  memset(shape, 0xEE, sizeof shape);
  CHECK(tensor->dl_tensor.shape != shape);
  CHECK(tensor->dl_tensor.shape[0] == 2 && tensor->dl_tensor.shape[1] == 3 && tensor->dl_tensor.shape[2] == 4);
  CHECK(tensor->dl_tensor.strides[0] == 12 && tensor->dl_tensor.strides[1] == 4 && tensor->dl_tensor.strides[2] == 1);
  CHECK(tensor->dl_tensor.data == memory + 12 && tensor->dl_tensor.byte_offset == 8);
  CHECK(tensor->dl_tensor.ndim == 3 && tensor->dl_tensor.dtype.code == kDLFloat && tensor->dl_tensor.dtype.bits == 32);
  CHECK(is_address(tensor, memory + 14));
  must_release(tensor);
  checked("cases B13, A17, E1, E2: numbers are copied, strides always sent, data and byte_offset passed on as a pair");

  shape[0] = 2, shape[1] = 3, shape[2] = 4;
  layout.strides = strides;
  tensor = must_export(layout, 0, DLRO_MUTABILITY_WRITABLE);
  memset(strides, 0xEE, sizeof strides);
  CHECK(tensor->dl_tensor.strides[0] == -12 && tensor->dl_tensor.strides[1] == 1 && tensor->dl_tensor.strides[2] == 3);
  must_release(tensor);
  checked("given strides are copied, negative ones too");

  layout = describe(memory, f32, 0, (int64_t *)1, (int64_t *)1);
  layout.byte_offset = 8;
  tensor = must_export(layout, 0, DLRO_MUTABILITY_READ_ONLY);
  CHECK(tensor->dl_tensor.ndim == 0 && is_address(tensor, memory + 2));
  CHECK(tensor->dl_tensor.shape == NULL && tensor->dl_tensor.strides == NULL);
  CHECK_OK(dlro_tensor_validate(tensor));
  must_release(tensor);
  checked("cases D3, A18, rule 0-d: wild shape and strides of a 0-d tensor are not read and not passed on");

  shape[0] = 1, shape[1] = 3, shape[2] = 1;
  strides[0] = INT64_MIN, strides[1] = 1, strides[2] = INT64_MAX;
  layout = describe(memory, f32, 3, shape, strides);
  must_release(must_export(layout, 0, DLRO_MUTABILITY_WRITABLE));
  strides[0] = 0, strides[2] = 0;
  must_release(must_export(layout, 0, DLRO_MUTABILITY_WRITABLE));
  checked("rule size-1 dimensions: their strides mean nothing");
}

static void empty(void) {
  int64_t none[3] = {0, 3, 5}, huge[3] = {(int64_t)1 << 62, 0, (int64_t)1 << 62};
  int64_t wild[3] = {INT64_MAX, INT64_MIN, 0};
  void *const data[] = {NULL, (void *)1, memory, (void *)UINTPTR_MAX};
  Tensor *tensor;
  uint64_t count;
  unsigned i, j, k;
  for (i = 0; i < 4; i++) {
    for (j = 0; j < 2; j++) {
      for (k = 0; k < 3; k++) {
        DLTensor layout = describe(data[i], dtype(kDLInt, 32, 1), 3, j ? huge : none, k ? wild : NULL);
        layout.byte_offset = k == 2 ? UINT64_MAX : 16;
        tensor = must_export(layout, 0, mutabilities[k]);
        CHECK(tensor->dl_tensor.data == NULL && tensor->dl_tensor.byte_offset == 0);
        CHECK(tensor->dl_tensor.strides != NULL);
        CHECK_OK(dlro_tensor_element_count(tensor, &count));
        CHECK(count == 0 && is_address(tensor, NULL));
        must_release(tensor);
      }
    }
  }
  checked("case D4, rule zero-size: any data, any strides, huge other dimensions; sent with NULL data; owner released");
}

static void refused(void) {
  int64_t shape[3] = {2, 3, 4}, negative[3] = {2, -4, 1}, empty_negative[2] = {0, -1};
  int64_t huge[2] = {(int64_t)1 << 32, (int64_t)1 << 32}, wide[1] = {(int64_t)1 << 61}, two[2] = {2, 2};
  int64_t far[2] = {INT64_MAX, INT64_MAX}, low[2] = {INT64_MIN, 1}, overlapping[2] = {0, 1}, back[1] = {-100};
  const DLDataType f32 = dtype(kDLFloat, 32, 1);
  const DLTensor good = describe(memory, f32, 3, shape, NULL);
  DLTensor layout = good;
  Tensor *out;
  const int host[] = {kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged};
  unsigned i;

  CHECK_REFUSED(out, dlro_tensor_export(NULL, 0, 0, &released, count_release, &out), DLRO_ERR_NULL, "layout is NULL");
  CHECK_STATUS(dlro_tensor_export(&good, 0, 0, &released, count_release, NULL), DLRO_ERR_NULL, "out is NULL");
  layout.shape = NULL;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_NULL, "shape is NULL with ndim 3");
  layout = good, layout.data = NULL;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_NULL, "data is NULL, and the elements take 96 bytes");
  checked("DLRO_ERR_NULL: layout, out, shape, data");

  CHECK_REFUSED(out, try_export(good, 0, 3, &out), DLRO_ERR_ARGUMENT, "mutability is 3");
  CHECK_REFUSED(out, try_export(good, 0, UINT32_MAX, &out), DLRO_ERR_ARGUMENT, "mutability is 4294967295");
  CHECK_REFUSED(out, try_export(good, READ_ONLY, 0, &out), DLRO_ERR_ARGUMENT, "flags is 1");
  CHECK_REFUSED(out, try_export(good, UNKNOWN_FLAG, 0, &out), DLRO_ERR_ARGUMENT, "flags is 1099511627776");
  CHECK_REFUSED(out, try_export(good, IS_COPIED | 8, 1, &out), DLRO_ERR_ARGUMENT, "flags is 10");
  checked("DLRO_ERR_ARGUMENT: mutability, READ_ONLY as a flag, flag bits that DLPack does not define are not invented");

  layout = good, layout.ndim = -1;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "ndim is -1");
  layout.ndim = INT32_MIN;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "ndim is -2147483648");
  layout.ndim = 0x7fffffff;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "ndim is 2147483647");
  layout.ndim = 1025;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "ndim is 1025; it must be from 0 to 1024");
  layout = describe(memory, f32, 3, negative, NULL);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "shape[1] is -4; dimensions must be >= 0");
  layout = describe(NULL, f32, 2, empty_negative, NULL);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "shape[1] is -1");
  checked("case D3: ndim and dimensions out of range, before anything is read");

  layout = describe(memory, f32, 2, huge, NULL);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "element count or extent does not fit");
  layout = describe(memory, dtype(kDLFloat, 64, 1), 1, wide, NULL);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "extent in bytes does not fit");
  layout = describe(memory, f32, 2, two, far);
  CHECK_REFUSED(out, try_export(layout, 0, 1, &out), DLRO_ERR_BOUNDS, "extent does not fit");
  layout = describe(memory, f32, 2, two, low);
  CHECK_REFUSED(out, try_export(layout, 0, 1, &out), DLRO_ERR_BOUNDS, "does not fit");
  checked("rule validation: element count, bytes or extent overflow");

  layout = good, layout.data = (void *)(UINTPTR_MAX - 15);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "leaves the address space");
  layout = good, layout.byte_offset = UINT64_MAX;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "byte_offset 18446744073709551615");
  layout = good, layout.byte_offset = (uint64_t)-40;
  layout.data = (void *)32;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "byte_offset 18446744073709551576");
  two[0] = 2;
  layout = describe((void *)64, f32, 1, two, back);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "data 0x40 + byte_offset 0");
  checked("case E4, rule validation: data + byte_offset + extent wraps, at either end");

  layout = good, layout.dtype = dtype(kDLFloat, 8, 1);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_DTYPE, "dtype (code 2, bits 8, lanes 1) does not exist");
  layout.dtype = dtype(kDLOpaqueHandle, 64, 1);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_DTYPE, "opaque handle");
  layout.dtype = dtype(200, 8, 1);
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_DTYPE, "code 200");
  checked("cases F5, C5: DLRO_ERR_DTYPE");

  for (i = 0; i < 4; i++) {
    layout = on_device(good, host[i], 3);
    CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_DEVICE, "id 3) has an id, and host memory has none");
  }
  CHECK_REFUSED(out, try_export(on_device(good, kDLCPU, -1), 0, 0, &out), DLRO_ERR_DEVICE, "(type 1, id -1)");
  checked("case G1: host devices have id 0");

  layout = describe(memory, f32, 2, two, overlapping);
  CHECK_REFUSED(out, try_export(layout, 0, DLRO_MUTABILITY_WRITABLE, &out), DLRO_ERR_LAYOUT, "share memory");
  must_release(must_export(layout, 0, DLRO_MUTABILITY_READ_ONLY));
  must_release(must_export(layout, 0, DLRO_MUTABILITY_IMMUTABLE));
  checked("case D16, rule self-overlap: never writable, fine to read");
}

/* ndim 0x7fffffff with a shape array that ends where the mapping ends. */
static void short_shape(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int64_t *shape = (int64_t *)(void *)(pages + page) - 1;
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL);
  Tensor *out;
  CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
  *shape = 4;
  must_release(must_export(layout, 0, DLRO_MUTABILITY_WRITABLE));
  layout.ndim = 0x7fffffff;
  CHECK_REFUSED(out, try_export(layout, 0, 0, &out), DLRO_ERR_BOUNDS, "ndim is 2147483647");
  CHECK_REFUSED(out, dlro_tensor_new(&layout, &out), DLRO_ERR_BOUNDS, "ndim is 2147483647");
  CHECK(munmap(pages, 2 * page) == 0);
  checked("case D3: ndim 0x7fffffff is refused before the shape is read");
}

static void ownership(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL), bad = layout;
  Tensor *tensor, *out;
  int i;
  bad.dtype = dtype(kDLFloat, 7, 1);
  released = 0;
  for (i = 0; i < 10000; i++) CHECK_REFUSED(out, try_export(bad, 0, 0, &out), DLRO_ERR_DTYPE, "bits 7");
  CHECK(released == 0);
  checked("case B10: 10000 failing exports release nothing, and leak nothing (valgrind, LSan)");

  tensor = must_export(layout, 0, 0);
  CHECK(released == 0);
  tensor->deleter(tensor);
  CHECK(released == 1);
  must_release(must_export(layout, 0, 0));
  checked("case B3a: the deleter, called by hand or by dlro_tensor_release, releases the owner once");

  CHECK_OK(dlro_tensor_export(&layout, 0, 0, NULL, NULL, &tensor));
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_tensor_export(&layout, 0, 0, &released, NULL, &tensor));
  i = released;
  dlro_tensor_release(tensor);
  CHECK(released == i);
  CHECK_OK(dlro_tensor_export(&layout, 0, 0, NULL, NULL, &tensor));
  dlro_tensor_release(tensor);
  dlro_tensor_release(NULL);
  checked("release may be NULL, owner too, and NULL may be released");
}

/* An owner that any number of tensors hold. */
static int holders, freed;
static void let_go(void *owner) {
  CHECK(owner == &holders);
  if (--holders == 0) freed++;
}

static void twice(void) {
  int64_t shape[1] = {2};
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL);
  Tensor *tensors[2];
  int order;
  for (order = 0; order < 2; order++) {
    holders = 2, freed = 0;
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_IMMUTABLE, &holders, let_go, &tensors[0]));
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_IMMUTABLE, &holders, let_go, &tensors[1]));
    CHECK(tensors[0]->flags == READ_ONLY && tensors[1]->flags == READ_ONLY);
    CHECK(tensors[0]->dl_tensor.data == tensors[1]->dl_tensor.data);
    dlro_tensor_release(tensors[order]);
    CHECK(freed == 0);
    dlro_tensor_release(tensors[1 - order]);
    CHECK(freed == 1);
  }
  checked("case A5: one immutable owner exported twice, released in both orders");
}

/* Releases another tensor, and makes, shares, fails and releases more, from within a release. */
static int depth;
static void reenter(void *other) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL);
  Tensor *tensor, *share, *out;
  depth++;
  CHECK_OK(dlro_tensor_export(&layout, 0, 0, &released, count_release, &tensor));
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &share));
  dlro_tensor_release(tensor);
  CHECK_REFUSED(out, dlro_tensor_export(NULL, 0, 0, NULL, NULL, &out), DLRO_ERR_NULL, "layout is NULL");
  dlro_tensor_release(share);
  dlro_tensor_release((Tensor *)other);
}

static void reentrance(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL);
  Tensor *tensors[4] = {NULL, NULL, NULL, NULL}, *imported;
  dlro_import_options copy = DLRO_IMPORT_OPTIONS_INIT;
  int i;
  depth = 0, released = 0;
  for (i = 0; i < 3; i++) CHECK_OK(dlro_tensor_export(&layout, 0, 0, tensors[i], reenter, &tensors[i + 1]));
  dlro_tensor_release(tensors[3]);
  CHECK(depth == 3 && released == 3);
  /* From within import, which copies and then releases. */
  CHECK_OK(dlro_tensor_export(&layout, 0, 0, NULL, reenter, &tensors[0]));
  copy.copy = DLRO_COPY_ALWAYS;
  CHECK_OK(dlro_tensor_import(tensors[0], &copy, &imported));
  CHECK(depth == 4 && released == 4);
  dlro_tensor_release(imported);
  checked("rule callbacks: a release may export, share, fail and release other tensors");
}

static void copied_and_padded(void) {
  int64_t shape[1] = {3};
  DLTensor layout = describe(memory, dtype(kDLFloat4_e2m1fn, 4, 1), 1, shape, NULL);
  Tensor *tensor;
  uint64_t nbytes;
  tensor = must_export(layout, 0, 0);
  CHECK_OK(dlro_tensor_nbytes(tensor, &nbytes));
  CHECK(nbytes == 2 && tensor->flags == 0);
  must_release(tensor);
  tensor = must_export(layout, PADDED, 0);
  CHECK_OK(dlro_tensor_nbytes(tensor, &nbytes));
  CHECK(nbytes == 3 && tensor->flags == PADDED);
  must_release(tensor);
  tensor = must_export(layout, PADDED | IS_COPIED, DLRO_MUTABILITY_IMMUTABLE);
  CHECK(tensor->flags == (PADDED | IS_COPIED | READ_ONLY));
  must_release(tensor);
  checked("rule flags: IS_COPIED and PADDED are the producer's to set");
}

/* The lowest version that defines what the tensor uses. */
static void versions(void) {
  int64_t shape[1] = {2};
  int code, bits;
  for (code = 0; code < 18; code++) {
    Tensor *tensor;
    DLTensor layout;
    if (code == kDLOpaqueHandle) continue;
    bits = code <= kDLFloat ? 32 : code == kDLBfloat ? 16 : code == kDLComplex ? 64 : code <= 14 ? 8 : code <= 16 ? 6 : 4;
    layout = describe(memory, dtype(code, bits, 1), 1, shape, NULL);
    tensor = must_export(layout, IS_COPIED, 1);
    CHECK(tensor->version.minor == (code >= 7 ? 1 : 0));
    must_release(tensor);
    tensor = must_export(on_device(layout, kDLTrn, 0), 0, 1);
    CHECK(tensor->version.minor == 2);
    must_release(tensor);
    CHECK_OK(dlro_tensor_new(&layout, &tensor));
    CHECK(tensor->version.major == 1 && tensor->version.minor == (code >= 7 ? 1 : 0));
    dlro_tensor_release(tensor);
  }
  {
    DLTensor layout = describe(memory, dtype(kDLInt, 4, 1), 1, shape, NULL);
    Tensor *tensor = must_export(layout, 0, 1);
    CHECK(tensor->version.minor == 0);
    must_release(tensor);
    tensor = must_export(layout, PADDED, 1);
    CHECK(tensor->version.minor == 1);
    must_release(tensor);
  }
  checked("case C6: the lowest minor version that defines dtype, flags and device");
}

static void devices(void) {
  const int32_t types[] = {2, 4, 7, 8, 9, 10, 12, 14, 15, 16, 17, 18, 0, 19, 1000, -1, INT32_MIN, INT32_MAX};
  int64_t shape[1] = {2};
  int i;
  for (i = 0; i < LENGTH(types); i++) {
    DLTensor layout = on_device(describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL), types[i], 2);
    Tensor *tensor, *out;
    layout.byte_offset = 8;
    tensor = must_export(layout, 0, 0);
    CHECK((int32_t)tensor->dl_tensor.device.device_type == types[i] && tensor->dl_tensor.device.device_id == 2);
    CHECK(tensor->dl_tensor.data == memory && tensor->dl_tensor.byte_offset == 8);
    CHECK_OK(dlro_tensor_validate(tensor));
    CHECK_REFUSED(out, dlro_tensor_copy(tensor, &out), DLRO_ERR_DEVICE, "id 2) holds memory that the host cannot read");
    must_release(tensor);
  }
  checked("cases G1, G4: device types are an open set, passed on with their id, never followed");
}

static void new_tensor(void) {
  int64_t shape[3] = {3, 5, 7}, huge[2] = {(int64_t)1 << 32, (int64_t)1 << 32}, large[1] = {(int64_t)1 << 47};
  int64_t negative[1] = {-2}, none[2] = {3, 0};
  DLTensor prototype = describe((void *)3, dtype(kDLInt, 32, 1), 3, shape, (int64_t *)1), bad;
  Tensor *tensor, *out;
  void *data;
  prototype.byte_offset = UINT64_MAX;
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  CHECK_OK(dlro_tensor_validate(tensor));
  CHECK(tensor->flags == 0 && tensor->dl_tensor.byte_offset == 0 && tensor->deleter != NULL);
  CHECK((uintptr_t)tensor->dl_tensor.data % 256 == 0 && all_zero(tensor->dl_tensor.data, 3 * 5 * 7 * 4));
  CHECK(tensor->dl_tensor.strides[0] == 35 && tensor->dl_tensor.strides[1] == 7 && tensor->dl_tensor.strides[2] == 1);
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_tensor_data_mut(tensor, &data));
  memset(data, 1, 3 * 5 * 7 * 4);
  dlro_tensor_release(tensor);
  {
    Tensor *many[16];
    unsigned i;
    for (i = 0; i < 16; i++) {
      shape[0] = 1 + (int64_t)i;
      CHECK_OK(dlro_tensor_new(&prototype, &many[i]));
      CHECK((uintptr_t)many[i]->dl_tensor.data % 256 == 0);
      CHECK(all_zero(many[i]->dl_tensor.data, (size_t)shape[0] * 35 * 4));
    }
    for (i = 0; i < 16; i++) dlro_tensor_release(many[i]);
    shape[0] = 3;
  }
  checked("cases E6, J3: zeroed, row-major, writable, 256-byte aligned; only device, ndim, dtype, shape are read");

  prototype = describe(NULL, dtype(kDLInt, 32, 1), 2, none, NULL);
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  CHECK(tensor->dl_tensor.data == NULL && tensor->dl_tensor.strides != NULL);
  dlro_tensor_release(tensor);
  prototype = describe(NULL, dtype(kDLInt, 32, 1), 0, (int64_t *)1, NULL);
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  CHECK_OK(dlro_tensor_validate(tensor));
  CHECK(tensor->dl_tensor.data != NULL);
  dlro_tensor_release(tensor);
  checked("a new tensor without elements, and a new 0-d tensor");

  prototype = describe(NULL, dtype(kDLInt, 8, 1), 3, shape, NULL);
  CHECK_REFUSED(out, dlro_tensor_new(NULL, &out), DLRO_ERR_NULL, "prototype is NULL");
  CHECK_STATUS(dlro_tensor_new(&prototype, NULL), DLRO_ERR_NULL, "out is NULL");
  bad = prototype, bad.shape = NULL;
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_NULL, "shape is NULL with ndim 3");
  bad = prototype, bad.ndim = -1;
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_BOUNDS, "ndim is -1");
  bad = prototype, bad.ndim = 1, bad.shape = negative;
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_BOUNDS, "shape[0] is -2");
  bad = prototype, bad.ndim = 2, bad.shape = huge;
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_BOUNDS, "does not fit");
  bad = prototype, bad.dtype = dtype(kDLBool, 1, 1);
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_DTYPE, "is not a bool");
  bad = on_device(prototype, kDLCUDA, 1);
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_DEVICE, "on device (type 2, id 1), and (type 1, id 0) is wanted");
  bad = on_device(prototype, kDLCPU, 1);
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_DEVICE, "(type 1, id 1)");
  bad = prototype, bad.ndim = 1, bad.shape = large;
  CHECK_REFUSED(out, dlro_tensor_new(&bad, &out), DLRO_ERR_NO_MEMORY, "an allocation of 140737488355328 bytes failed");
  checked("dlro_tensor_new: every status, outputs zeroed");
}

static int set_errors;
static char kind[32];
static void set_error(void *context, const char *exception, const char *message) {
  CHECK(context == &set_errors);
  CHECK(message != NULL && strcmp(message, dlro_last_error_message()) == 0);
  set_errors++;
  snprintf(kind, sizeof kind, "%s", exception);
}

static void allocator(void) {
  int64_t shape[1] = {3}, large[1] = {(int64_t)1 << 47};
  DLTensor prototype = describe((void *)3, dtype(kDLFloat, 32, 1), 1, shape, (int64_t *)1), bad = prototype;
  const DLPackManagedTensorAllocator allocate = dlro_managed_tensor_allocator;
  Tensor *out;
  CHECK(allocate(&prototype, &out, &set_errors, set_error) == 0 && set_errors == 0);
  CHECK(out->version.major == 1 && out->version.minor == 0 && out->flags == 0 && out->deleter != NULL);
  CHECK((uintptr_t)out->dl_tensor.data % 256 == 0 && out->dl_tensor.strides[0] == 1);
  CHECK(out->dl_tensor.byte_offset == 0);
  dlro_tensor_release(out);

  memset(&out, 0xA5, sizeof out);
  bad = on_device(prototype, kDLCUDA, 0);
  CHECK(allocate(&bad, &out, &set_errors, set_error) == -1 && set_errors == 1 && out == NULL);
  CHECK(strcmp(kind, "BufferError") == 0);
  memset(&out, 0xA5, sizeof out);
  bad = prototype, bad.ndim = -1;
  CHECK(allocate(&bad, &out, &set_errors, set_error) == -1 && set_errors == 2 && out == NULL);
  CHECK(strcmp(kind, "ValueError") == 0);
  memset(&out, 0xA5, sizeof out);
  bad = prototype, bad.shape = large, bad.dtype = dtype(kDLInt, 8, 1);
  CHECK(allocate(&bad, &out, &set_errors, set_error) == -1 && set_errors == 3 && out == NULL);
  CHECK(strcmp(kind, "MemoryError") == 0);
  CHECK(allocate(&prototype, NULL, &set_errors, set_error) == -1 && set_errors == 4);
  CHECK(allocate(NULL, &out, &set_errors, set_error) == -1 && set_errors == 5 && out == NULL);
  memset(&out, 0xA5, sizeof out);
  CHECK(allocate(NULL, &out, NULL, NULL) == -1 && set_errors == 5 && out == NULL);
  checked("case J3: the allocator fills everything, or calls SetError once with a kind and leaves NULL");
}

static void anywhere(void) {
  char *bytes = (char *)malloc(64 + 1);
  int64_t shape[1] = {4};
  Tensor *tensor = must_export(describe(bytes + 1, dtype(kDLUInt, 8, 1), 1, shape, NULL), 0, 0);
  CHECK(is_address(tensor, bytes + 1));
  must_release(tensor);
  tensor = must_export(describe(bytes + 1, dtype(kDLFloat, 32, 1), 1, shape, NULL), 0, 0);
  CHECK_OK(dlro_tensor_validate(tensor));
  CHECK(is_address(tensor, bytes + 1));
  must_release(tensor);
  free(bytes);
  checked("case E6, rule alignment: never assumed, not even the natural one");
}

int main(void) {
  fields();
  empty();
  refused();
  short_shape();
  ownership();
  twice();
  reentrance();
  copied_and_padded();
  versions();
  devices();
  new_tensor();
  allocator();
  anywhere();
  return 0;
}
