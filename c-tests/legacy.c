/* Chapter legacy and negotiation: the struct that has no flags, and what a __dlpack__ method must decide. */
#include "foreign_legacy.h"
#include <pthread.h>

#define READ_ONLY_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define COPIED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)
#define PADDED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
#define UNKNOWN_FLAG ((uint64_t)1 << 40)

static float elements[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static int64_t shape_3_4[2] = {3, 4}, strides_3_4[2] = {4, 1};
static const uint32_t mutabilities[3] = {DLRO_MUTABILITY_WRITABLE, DLRO_MUTABILITY_READ_ONLY,
                                         DLRO_MUTABILITY_IMMUTABLE};
static const uint32_t copies[3] = {DLRO_COPY_IF_NEEDED, DLRO_COPY_NEVER, DLRO_COPY_ALWAYS};

static DLTensor floats_3_4(void) { return host_tensor(elements, FLOAT32, 2, shape_3_4, strides_3_4); }

/* A tensor of this library over `elements`; *released counts. */
static struct DLManagedTensorVersioned *ours(uint32_t mutability, uint64_t flags, int *released) {
  struct DLManagedTensorVersioned *tensor;
  const DLTensor layout = floats_3_4();
  *released = 0;
  CHECK_OK(dlro_tensor_export(&layout, flags, mutability, released, count_release, &tensor));
  return tensor;
}

/* Only tensors of this library can be shared. */
static bool is_ours(const struct DLManagedTensorVersioned *tensor) {
  struct DLManagedTensorVersioned *shared;
  if (dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &shared) != DLRO_OK) return false;
  dlro_tensor_release(shared);
  return true;
}

static void check_values(const struct DLManagedTensorVersioned *tensor, const float *expected, size_t count) {
  const void *data = address_of(tensor);
  CHECK(memcmp(data, expected, count * sizeof *expected) == 0);
}

/* --- import --- */

static int32_t expected_of_import(uint32_t vouched, uint32_t access, uint32_t copy, bool *copied) {
  const bool met = access == DLRO_ACCESS_READ || (access == DLRO_ACCESS_WRITE && vouched == DLRO_MUTABILITY_WRITABLE) ||
                   (access == DLRO_ACCESS_IMMUTABLE && vouched == DLRO_MUTABILITY_IMMUTABLE);
  *copied = copy == DLRO_COPY_ALWAYS || !met;
  if (copy == DLRO_COPY_NEVER && !met) return access == DLRO_ACCESS_WRITE ? DLRO_ERR_READ_ONLY : DLRO_ERR_NOT_IMMUTABLE;
  return DLRO_OK;
}

static void import_matrix(void) {
  size_t v, a, c;
  for (v = 0; v < 3; v++) {
    for (a = 0; a < 3; a++) {
      for (c = 0; c < 3; c++) {
        const uint32_t vouched = mutabilities[v], access = (uint32_t)a, copy = copies[c];
        dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
        struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
        int deleted;
        bool copied;
        const int32_t expected = expected_of_import(vouched, access, copy, &copied);
        DLManagedTensor *foreign = foreign_legacy(floats_3_4(), &deleted);
        const DLManagedTensor before = *foreign;
        void *writable = STALE(void);
        options.access = access;
        options.copy = copy;
        CHECK_STATUS(dlro_legacy_import(foreign, vouched, &options, &tensor), expected,
                     access == DLRO_ACCESS_WRITE ? "read-only" : "not immutable");
        if (expected != DLRO_OK) {
          CHECK(tensor == NULL && deleted == 0);
          CHECK(memcmp(foreign, &before, sizeof before) == 0);
          foreign->deleter(foreign);
          CHECK(deleted == 1);
          continue;
        }
        CHECK(deleted == (copied ? 1 : 0)); /* a copy ends the foreign tensor before the call returns */
        CHECK((address_of(tensor) == (const void *)elements) == !copied);
        CHECK(((tensor->flags & COPIED_FLAG) != 0) == copied);
        check_values(tensor, elements, 12);
        CHECK(is_ours(tensor));
        {
          const uint32_t fresh = access == DLRO_ACCESS_IMMUTABLE ? DLRO_MUTABILITY_IMMUTABLE : DLRO_MUTABILITY_WRITABLE;
          const uint32_t has = dlro_tensor_mutability(tensor);
          CHECK(has == (copied ? fresh : vouched));
          CHECK(((tensor->flags & READ_ONLY_FLAG) != 0) == (has != DLRO_MUTABILITY_WRITABLE));
          CHECK_STATUS(dlro_tensor_data_mut(tensor, &writable),
                       has == DLRO_MUTABILITY_WRITABLE ? DLRO_OK : DLRO_ERR_READ_ONLY, "read-only");
          CHECK(writable == (has == DLRO_MUTABILITY_WRITABLE ? address_of(tensor) : NULL));
        }
        dlro_tensor_release(tensor);
        CHECK(deleted == 1);
      }
    }
  }
  checked("cases A2, B14: import of a legacy tensor: vouched x access x copy, deleters, addresses, flags");
}

static void import_defaults(void) {
  struct DLManagedTensorVersioned *tensor;
  int deleted;
  DLManagedTensor *foreign = foreign_legacy(floats_3_4(), &deleted);
  dlro_import_options zeros;
  void *writable;
  CHECK_OK(dlro_legacy_import(foreign, DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
  CHECK(address_of(tensor) == (const void *)elements && deleted == 0);
  CHECK_STATUS(dlro_tensor_data_mut(tensor, &writable), DLRO_ERR_READ_ONLY, "read-only (flags 0x1)");
  CHECK(tensor->version.major == 1 && tensor->version.minor == 0);
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);

  /* case H3: zeros behind the size are the defaults */
  memset(&zeros, 0, sizeof zeros);
  zeros.struct_size = sizeof zeros;
  foreign = foreign_legacy(floats_3_4(), &deleted);
  CHECK_OK(dlro_legacy_import(foreign, DLRO_MUTABILITY_WRITABLE, &zeros, &tensor));
  CHECK(address_of(tensor) == (const void *)elements && deleted == 0);
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);
  checked("cases A2, A22: a legacy tensor is read-only unless the caller vouches for it (case H3: defaults)");
}

static void import_null_deleter(void) {
  static const uint32_t policies[2] = {DLRO_COPY_IF_NEEDED, DLRO_COPY_ALWAYS};
  size_t i;
  for (i = 0; i < 2; i++) {
    DLManagedTensor foreign, before;
    struct DLManagedTensorVersioned *tensor;
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    memset(&foreign, 0, sizeof foreign);
    foreign.dl_tensor = floats_3_4();
    before = foreign;
    options.copy = policies[i];
    CHECK_OK(dlro_legacy_import(&foreign, DLRO_MUTABILITY_WRITABLE, &options, &tensor));
    check_values(tensor, elements, 12);
    dlro_tensor_release(tensor);
    CHECK(memcmp(&foreign, &before, sizeof before) == 0);
    foreign.dl_tensor.dtype.code = 200; /* case J2: and where the import fails */
    CHECK_STATUS(dlro_legacy_import(&foreign, DLRO_MUTABILITY_WRITABLE, &options, &tensor), DLRO_ERR_DTYPE, "code 200");
    CHECK(tensor == NULL);
  }
  {
    DLManagedTensor *foreign = (DLManagedTensor *)calloc(1, sizeof *foreign);
    struct DLManagedTensorVersioned *tensor;
    foreign->dl_tensor = floats_3_4();
    CHECK_OK(dlro_legacy_import(foreign, DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    dlro_tensor_release(tensor);
    CHECK(foreign->dl_tensor.data == (void *)elements); /* still there: not ours to free */
    free(foreign);
  }
  checked("cases B4, B8, J2: a NULL deleter is not called, and nothing is freed");
}

static void import_odd_descriptors(void) {
  struct DLManagedTensorVersioned *tensor;
  int deleted;
  int64_t *const garbage = STALE(int64_t);
  int64_t shape_2_3_4[3] = {2, 3, 4}, empty[2] = {0, 3}, ones[3] = {1, 1, 2}, wild[3] = {77, -9, 1};
  uint64_t number;
  bool flag;
  /* cases D1, D2: NULL strides */
  elements[11] = 11;
  {
    double values[24];
    const DLDataType float64 = {kDLFloat, 64, 1};
    CHECK_OK(dlro_legacy_import(foreign_legacy(host_tensor(values, float64, 3, shape_2_3_4, NULL), &deleted),
                                DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK(tensor->dl_tensor.strides[0] == 12 && tensor->dl_tensor.strides[1] == 4 && tensor->dl_tensor.strides[2] == 1);
    CHECK_OK(dlro_tensor_is_row_major(tensor, &flag));
    CHECK(flag && deleted == 0);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  /* case D3: 0-d, whatever the pointers */
  {
    DLTensor layout = host_tensor(elements, FLOAT32, 0, garbage, garbage);
    layout.byte_offset = 8;
    CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &deleted), DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK(tensor->dl_tensor.shape == NULL && tensor->dl_tensor.strides == NULL);
    CHECK(address_of(tensor) == (const void *)(elements + 2));
    CHECK_OK(dlro_tensor_nbytes(tensor, &number));
    CHECK(number == 4);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  /* case D4: empty, with and without data */
  for (number = 0; number < 2; number++) {
    void *data = number == 0 ? NULL : (void *)(uintptr_t)1;
    CHECK_OK(dlro_legacy_import(foreign_legacy(host_tensor(data, FLOAT32, 2, empty, NULL), &deleted),
                                DLRO_MUTABILITY_WRITABLE, NULL, &tensor));
    CHECK(address_of(tensor) == NULL && tensor->dl_tensor.strides != NULL && deleted == 0);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  /* strides of dimensions of size 1 mean nothing */
  CHECK_OK(dlro_legacy_import(foreign_legacy(host_tensor(elements, FLOAT32, 3, ones, wild), &deleted),
                              DLRO_MUTABILITY_WRITABLE, NULL, &tensor));
  CHECK_OK(dlro_tensor_is_row_major(tensor, &flag));
  CHECK(flag);
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);
  /* case E1: byte_offset stays a pair */
  {
    DLTensor layout = host_tensor(elements, FLOAT32, 1, ones + 2, NULL);
    layout.byte_offset = 4;
    CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &deleted), DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK(tensor->dl_tensor.data == (void *)elements && tensor->dl_tensor.byte_offset == 4);
    check_values(tensor, elements + 1, 2);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  checked("cases D1, D2, D3, D4, E1: NULL strides, 0-d, empty, size-1 dimensions and byte_offset of legacy tensors");

  /* case C1: the data pointer of each of these reads as DLPack version 1.0 to 1.9 */
  for (number = 0; number < 10; number++) {
    void *data = (void *)(uintptr_t)(1 | number << 32);
    CHECK_OK(dlro_legacy_import(foreign_legacy(host_tensor(data, UINT8, 2, shape_3_4, strides_3_4), &deleted),
                                DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK(tensor->dl_tensor.data == data && tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.shape[1] == 4);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  checked("case C1: the struct's layout is never guessed from its bytes");
}

/* One failing import: nothing consumed, output zeroed, descriptor untouched. */
static void refuse_import(DLTensor layout, const dlro_import_options *options, int32_t expected, const char *text) {
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  int deleted;
  DLManagedTensor *foreign = foreign_legacy(layout, &deleted);
  const DLManagedTensor before = *foreign;
  CHECK_STATUS(dlro_legacy_import(foreign, DLRO_MUTABILITY_WRITABLE, options, &tensor), expected, text);
  CHECK(tensor == NULL && deleted == 0);
  CHECK(memcmp(foreign, &before, sizeof before) == 0);
  foreign->deleter(foreign);
  CHECK(deleted == 1);
}

static void refuse_dtype(uint8_t code, uint8_t bits, uint16_t lanes, const char *text) {
  DLTensor layout = floats_3_4();
  layout.dtype.code = code;
  layout.dtype.bits = bits;
  layout.dtype.lanes = lanes;
  refuse_import(layout, NULL, DLRO_ERR_DTYPE, text);
}

static void import_refusals(void) {
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  const dlro_import_options defaults = DLRO_IMPORT_OPTIONS_INIT;
  DLTensor layout;
  int64_t numbers[2];
  int deleted;
  struct {
    dlro_import_options known;
    uint64_t tail;
  } longer = {DLRO_IMPORT_OPTIONS_INIT, 1};

  CHECK_STATUS(dlro_legacy_import(NULL, 0, NULL, &tensor), DLRO_ERR_NULL, "foreign is NULL");
  CHECK(tensor == NULL);
  {
    DLManagedTensor *foreign = foreign_legacy(floats_3_4(), &deleted);
    CHECK_STATUS(dlro_legacy_import(foreign, 0, NULL, NULL), DLRO_ERR_NULL, "out is NULL");
    tensor = STALE(struct DLManagedTensorVersioned);
    CHECK_STATUS(dlro_legacy_import(foreign, 3, NULL, &tensor), DLRO_ERR_ARGUMENT, "is 3");
    CHECK(tensor == NULL);
    CHECK_STATUS(dlro_legacy_import(foreign, UINT32_MAX, NULL, &tensor), DLRO_ERR_ARGUMENT, "is 4294967295");
    CHECK(deleted == 0);
    foreign->deleter(foreign);
    CHECK(deleted == 1);
  }
  options.access = 3;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "access is 3");
  options = defaults;
  options.copy = 3;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "copy is 3");
  options = defaults;
  options.layout = 4;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "layout is 4");
  options = defaults;
  options.flags = 4;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "flags is 4");
  options = defaults;
  options.threads = 5000;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "threads is 5000");
  options = defaults;
  options.alignment = 3;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "alignment is 3");
  options = defaults;
  options.struct_size = 8;
  refuse_import(floats_3_4(), &options, DLRO_ERR_ARGUMENT, "struct_size is 8");
  longer.known.struct_size = sizeof longer;
  refuse_import(floats_3_4(), &longer.known, DLRO_ERR_ARGUMENT, "at offset 40");
  longer.tail = 0;
  CHECK_OK(dlro_legacy_import(foreign_legacy(floats_3_4(), &deleted), 0, &longer.known, &tensor));
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);
  checked("import refuses NULL, unknown numbers and unknown options, and consumes nothing");

  layout = floats_3_4();
  layout.ndim = -1;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "ndim is -1");
  layout.ndim = INT32_MAX;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "ndim is 2147483647");
  layout = floats_3_4();
  layout.shape = NULL;
  refuse_import(layout, NULL, DLRO_ERR_NULL, "shape is NULL with ndim 2");
  layout = floats_3_4();
  layout.data = NULL;
  refuse_import(layout, NULL, DLRO_ERR_NULL, "data is NULL, and the elements take 48 bytes");
  layout = floats_3_4();
  layout.shape = numbers;
  numbers[0] = 3;
  numbers[1] = -4;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "shape[1] is -4");
  numbers[1] = INT64_MAX;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "does not fit");
  layout = floats_3_4();
  layout.strides = numbers;
  numbers[0] = INT64_MAX / 2;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "does not fit");
  layout = floats_3_4();
  layout.byte_offset = UINT64_MAX;
  refuse_import(layout, NULL, DLRO_ERR_BOUNDS, "leaves the address space");
  refuse_dtype(6, 1, 1, "is not a bool");
  refuse_dtype(1, 1, 1, "has no such width");
  refuse_dtype(2, 8, 1, "a code of its own");
  refuse_dtype(200, 8, 1, "(code 200, bits 8, lanes 1)");
  refuse_dtype(3, 64, 1, "opaque handle");
  refuse_dtype(2, 32, 0, "no lanes");
  refuse_dtype(2, 0, 1, "no bits");
  checked("case B7: a legacy descriptor that breaks a rule is refused and stays the caller's");

  layout = floats_3_4();
  layout.device.device_type = kDLCUDA;
  layout.device.device_id = 2;
  options = defaults;
  options.flags = DLRO_IMPORT_HOST;
  refuse_import(layout, &options, DLRO_ERR_DEVICE, "(type 2, id 2)");
  options = defaults;
  options.copy = DLRO_COPY_ALWAYS;
  refuse_import(layout, &options, DLRO_ERR_DEVICE, "(type 2, id 2)");
  options = defaults;
  options.device_type = kDLCPU;
  refuse_import(layout, &options, DLRO_ERR_DEVICE, "(type 1, id 0) is wanted");
  options = defaults;
  options.copy = DLRO_COPY_NEVER;
  options.layout = DLRO_LAYOUT_COLUMN_MAJOR;
  refuse_import(floats_3_4(), &options, DLRO_ERR_COPY_NEEDED, "column-major");
  numbers[0] = 1;
  numbers[1] = 3;
  layout = floats_3_4();
  layout.strides = numbers;
  options.layout = DLRO_LAYOUT_ROW_MAJOR;
  refuse_import(layout, &options, DLRO_ERR_COPY_NEEDED, "row-major");
  numbers[0] = -4;
  numbers[1] = 1;
  layout.byte_offset = 8 * sizeof(float);
  options.layout = DLRO_LAYOUT_NON_NEGATIVE;
  refuse_import(layout, &options, DLRO_ERR_COPY_NEEDED, "strides >= 0");
  numbers[0] = 0;
  options.layout = DLRO_LAYOUT_ANY;
  options.access = DLRO_ACCESS_WRITE;
  layout.byte_offset = 0;
  refuse_import(layout, &options, DLRO_ERR_COPY_NEEDED, "share memory");
  checked("a requirement that a legacy tensor cannot meet is refused by name");

  /* The same import that would not copy: CUDA's numbers pass through. */
  layout = floats_3_4();
  layout.device.device_type = kDLCUDA;
  layout.device.device_id = 2;
  CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &deleted), DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
  CHECK(tensor->dl_tensor.device.device_type == kDLCUDA && tensor->dl_tensor.device.device_id == 2);
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);

  /* case E7 */
  {
    static float room[64 + 16];
    float *odd = (float *)(((uintptr_t)room + 63) / 64 * 64 + 32);
    options = defaults;
    options.alignment = 64;
    options.copy = DLRO_COPY_NEVER;
    layout = host_tensor(odd, FLOAT32, 2, shape_3_4, strides_3_4);
    refuse_import(layout, &options, DLRO_ERR_COPY_NEEDED, "an alignment of 64 bytes");
    options.copy = DLRO_COPY_IF_NEEDED;
    CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &deleted), DLRO_MUTABILITY_READ_ONLY, &options, &tensor));
    CHECK(deleted == 1 && (tensor->flags & COPIED_FLAG) && (uintptr_t)address_of(tensor) % 64 == 0);
    dlro_tensor_release(tensor);
    options.alignment = 32;
    CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &deleted), DLRO_MUTABILITY_READ_ONLY, &options, &tensor));
    CHECK(deleted == 0 && address_of(tensor) == (const void *)odd);
    dlro_tensor_release(tensor);
    CHECK(deleted == 1);
  }
  checked("case E7: alignment is a requirement, met by a copy where one is allowed; case G1: device ids stay");
}

/* --- export --- */

static void export_policies(void) {
  size_t m, p;
  for (m = 0; m < 3; m++) {
    for (p = 0; p < 2; p++) {
      int released;
      struct DLManagedTensorVersioned *tensor = ours(mutabilities[m], 0, &released);
      const struct DLManagedTensorVersioned before = *tensor;
      DLManagedTensor *legacy = STALE(DLManagedTensor);
      if (p == 0 && m > 0) {
        CHECK_STATUS(dlro_legacy_export(tensor, (uint32_t)p, &legacy), DLRO_ERR_READ_ONLY, "the tensor is read-only");
        CHECK(dlro_status_is_exchange_error(DLRO_ERR_READ_ONLY));
        CHECK(legacy == NULL && released == 0 && memcmp(tensor, &before, sizeof before) == 0);
        check_values(tensor, elements, 12); /* alive, and still to be exported to somebody who knows flags */
        dlro_tensor_release(tensor);
        CHECK(released == 1);
        continue;
      }
      CHECK_OK(dlro_legacy_export(tensor, (uint32_t)p, &legacy));
      CHECK(legacy->deleter != NULL);
      CHECK(legacy->dl_tensor.data == (void *)elements && legacy->dl_tensor.byte_offset == 0);
      CHECK(legacy->dl_tensor.ndim == 2 && memcmp(legacy->dl_tensor.shape, shape_3_4, sizeof shape_3_4) == 0);
      CHECK(memcmp(legacy->dl_tensor.strides, strides_3_4, sizeof strides_3_4) == 0);
      CHECK(memcmp(&legacy->dl_tensor.dtype, &FLOAT32, sizeof FLOAT32) == 0);
      CHECK(released == 0);
      legacy->deleter(legacy);
      CHECK(released == 1);
    }
  }
  checked("cases A1, A8: read-only goes into the legacy struct only where the consumer is vouched for");
}

static void refuse_export(struct DLManagedTensorVersioned *tensor, int *deleted, int32_t expected, const char *text) {
  DLManagedTensor *legacy = STALE(DLManagedTensor);
  CHECK_STATUS(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy), expected, text);
  CHECK(legacy == NULL && *deleted == 0);
  dlro_tensor_release(tensor);
  CHECK(*deleted == 1);
}

static void export_refusals(void) {
  const DLDataType float4 = {kDLFloat4_e2m1fn, 4, 1}, nonsense = {200, 8, 1};
  DLManagedTensor *legacy = STALE(DLManagedTensor);
  struct DLManagedTensorVersioned *tensor;
  DLTensor layout;
  int deleted;
  CHECK_STATUS(dlro_legacy_export(NULL, 0, &legacy), DLRO_ERR_NULL, "tensor is NULL");
  CHECK(legacy == NULL);
  tensor = foreign_versioned(floats_3_4(), 3, 0, &deleted);
  CHECK_STATUS(dlro_legacy_export(tensor, 0, NULL), DLRO_ERR_NULL, "out is NULL");
  legacy = STALE(DLManagedTensor);
  CHECK_STATUS(dlro_legacy_export(tensor, 2, &legacy), DLRO_ERR_ARGUMENT, "policy is 2");
  CHECK(legacy == NULL && deleted == 0);
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);
  refuse_export(foreign_of_version_2(&deleted), &deleted, DLRO_ERR_VERSION, "version 2.0");
  layout = floats_3_4();
  layout.ndim = -3;
  refuse_export(foreign_versioned(layout, 3, 0, &deleted), &deleted, DLRO_ERR_BOUNDS, "ndim is -3");
  layout = floats_3_4();
  layout.data = NULL;
  refuse_export(foreign_versioned(layout, 3, 0, &deleted), &deleted, DLRO_ERR_NULL, "data is NULL");
  layout = floats_3_4();
  layout.dtype = nonsense;
  refuse_export(foreign_versioned(layout, 3, 0, &deleted), &deleted, DLRO_ERR_DTYPE, "code 200");
  layout.dtype = float4;
  refuse_export(foreign_versioned(layout, 3, PADDED_FLAG, &deleted), &deleted, DLRO_ERR_DTYPE, "padded");
  CHECK_OK(dlro_legacy_export(foreign_versioned(layout, 3, 0, &deleted), 0, &legacy)); /* packed is what it means */
  legacy->deleter(legacy);
  CHECK(deleted == 1);
  layout.dtype = FLOAT32; /* the flag says nothing of whole bytes */
  CHECK_OK(dlro_legacy_export(foreign_versioned(layout, 3, PADDED_FLAG, &deleted), 0, &legacy));
  legacy->deleter(legacy);
  CHECK(deleted == 1);
  checked("legacy export refuses what the struct cannot say, and the tensor stays the caller's");

  layout = floats_3_4();
  layout.strides = NULL;
  CHECK_OK(dlro_legacy_export(foreign_versioned(layout, 3, 0, &deleted), 0, &legacy));
  CHECK(legacy->dl_tensor.strides != NULL);
  CHECK(legacy->dl_tensor.strides[0] == 4 && legacy->dl_tensor.strides[1] == 1 && deleted == 0);
  legacy->deleter(legacy);
  CHECK(deleted == 1);
  layout = host_tensor(elements, FLOAT32, 0, STALE(int64_t), STALE(int64_t));
  CHECK_OK(dlro_legacy_export(foreign_versioned(layout, 3, 0, &deleted), 0, &legacy));
  CHECK(legacy->dl_tensor.ndim == 0);
  legacy->deleter(legacy);
  CHECK(deleted == 1);
  checked("case D1: NULL strides are never sent, also not in a legacy struct");
}

/* --- hops --- */

enum { HOPS = 7 };

static void hops_keep_rights(void) {
  size_t m, v, hop;
  int released;
  for (m = 0; m < 3; m++) {
    for (v = 0; v < 3; v++) {
      struct DLManagedTensorVersioned *tensor = ours(mutabilities[m], 0, &released);
      struct DLManagedTensorVersioned *const made = tensor;
      for (hop = 0; hop < HOPS; hop++) {
        DLManagedTensor *legacy;
        struct DLManagedTensorVersioned *again;
        CHECK_OK(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
        CHECK_OK(dlro_legacy_import(legacy, mutabilities[v], NULL, &again));
        CHECK_OK(dlro_tensor_import(again, NULL, &tensor));
        CHECK(dlro_tensor_mutability(tensor) == mutabilities[m]);
        CHECK(((tensor->flags & READ_ONLY_FLAG) != 0) == (m > 0));
        CHECK(tensor == made && released == 0);
      }
      check_values(tensor, elements, 12);
      dlro_tensor_release(tensor);
      CHECK(released == 1);
    }
  }
  checked("case A8: a tensor of ours comes back from legacy hops with its rights, whatever is vouched");

  /* A foreign one: its flags come back too, known or not, and what comes back is of this library. */
  {
    const uint64_t flags[4] = {0, READ_ONLY_FLAG, READ_ONLY_FLAG | UNKNOWN_FLAG, COPIED_FLAG | UNKNOWN_FLAG};
    for (m = 0; m < 4; m++) {
      int deleted;
      struct DLManagedTensorVersioned *tensor = foreign_versioned(floats_3_4(), 9, flags[m], &deleted);
      for (hop = 0; hop < HOPS; hop++) {
        DLManagedTensor *legacy;
        CHECK_OK(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
        CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_WRITABLE, NULL, &tensor));
        CHECK(tensor->flags == flags[m] && deleted == 0);
        CHECK((dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE) == !(flags[m] & READ_ONLY_FLAG));
      }
      CHECK(tensor->version.major == 1 && (!(flags[m] & UNKNOWN_FLAG) || tensor->version.minor == 9));
      CHECK(is_ours(tensor));
      dlro_tensor_release(tensor);
      CHECK(deleted == 1);
    }
  }
  checked("cases A8, C5: a foreign tensor's flags survive legacy hops, and rights do not grow");

  /* Through somebody else's legacy struct they cannot: what is vouched counts, and the weakest is the default. */
  {
    int deleted;
    struct DLManagedTensorVersioned *tensor;
    DLManagedTensor *legacy;
    dlro_import_options write = DLRO_IMPORT_OPTIONS_INIT;
    write.access = DLRO_ACCESS_WRITE;
    write.copy = DLRO_COPY_NEVER;
    CHECK_OK(dlro_legacy_import(foreign_legacy(floats_3_4(), &deleted), DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK_STATUS(dlro_legacy_export(tensor, DLRO_LEGACY_REFUSE_READ_ONLY, &legacy), DLRO_ERR_READ_ONLY, "read-only");
    CHECK_OK(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
    CHECK_STATUS(dlro_legacy_import(legacy, DLRO_MUTABILITY_WRITABLE, &write, &tensor), DLRO_ERR_READ_ONLY, "NEVER");
    CHECK(tensor == NULL && deleted == 0);
    write.copy = DLRO_COPY_IF_NEEDED;
    CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_READ_ONLY, &write, &tensor));
    CHECK(deleted == 1 && (tensor->flags & COPIED_FLAG) && !(tensor->flags & READ_ONLY_FLAG));
    CHECK(address_of(tensor) != (const void *)elements);
    check_values(tensor, elements, 12);
    dlro_tensor_release(tensor);
  }
  /* A struct that somebody copied elsewhere is no tensor of ours, but its deleter still works, once. */
  {
    DLManagedTensor *legacy, moved;
    struct DLManagedTensorVersioned *tensor;
    CHECK_OK(dlro_legacy_export(ours(DLRO_MUTABILITY_WRITABLE, 0, &released), 0, &legacy));
    moved = *legacy;
    CHECK_OK(dlro_legacy_import(&moved, DLRO_MUTABILITY_READ_ONLY, NULL, &tensor));
    CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY && released == 0);
    dlro_tensor_release(tensor);
    CHECK(released == 1);
  }
  checked("case A8: WRITE on a read-only tensor behind legacy hops is a copy or an error; copied structs are foreign");
}

static void *release_there(void *legacy) {
  ((DLManagedTensor *)legacy)->deleter((DLManagedTensor *)legacy);
  return NULL;
}

static void ends_on_any_thread(void) {
  int released;
  DLManagedTensor *legacy;
  pthread_t thread;
  CHECK_OK(dlro_legacy_export(ours(DLRO_MUTABILITY_WRITABLE, 0, &released), 0, &legacy));
  CHECK(pthread_create(&thread, NULL, release_there, legacy) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(released == 1);
  checked("case B6: a legacy tensor ends on another thread");
}

/* --- negotiation --- */

struct question {
  const DLPackVersion *max_version;
  bool foreign;
  uint32_t mutability; /* of a foreign one: WRITABLE or READ_ONLY */
  uint32_t policy, copy;
  int32_t device_type;
  bool fold;
};

static const char *versioned_name, *legacy_name, *used_versioned_name, *used_legacy_name;

static void check_names(const dlro_exported *out) {
  /* case B18: the same addresses in every answer */
  if (out->versioned != NULL) {
    if (versioned_name == NULL) versioned_name = out->capsule_name, used_versioned_name = out->used_capsule_name;
    CHECK(out->capsule_name == versioned_name && out->used_capsule_name == used_versioned_name);
    CHECK(strcmp(versioned_name, "dltensor_versioned") == 0);
    CHECK(strcmp(used_versioned_name, "used_dltensor_versioned") == 0);
  } else {
    if (legacy_name == NULL) legacy_name = out->capsule_name, used_legacy_name = out->used_capsule_name;
    CHECK(out->capsule_name == legacy_name && out->used_capsule_name == used_legacy_name);
    CHECK(strcmp(legacy_name, "dltensor") == 0 && strcmp(used_legacy_name, "used_dltensor") == 0);
  }
}

static bool is_zeroed(const dlro_exported *out) {
  return out->versioned == NULL && out->legacy == NULL && out->capsule_name == NULL && out->used_capsule_name == NULL;
}

static void ask(const struct question *question) {
  int64_t shape[1] = {8}, strides[1] = {1};
  DLTensor layout = host_tensor(elements, FLOAT32, 1, shape, strides);
  dlro_export_options options = DLRO_EXPORT_OPTIONS_INIT;
  const bool versioned = question->max_version != NULL && question->max_version->major >= 1;
  const bool read_only = question->mutability != DLRO_MUTABILITY_WRITABLE;
  const bool copied = question->copy == DLRO_COPY_ALWAYS;
  struct DLManagedTensorVersioned *tensor, before;
  const DLTensor *answer;
  dlro_exported out;
  int ended = 0;
  int32_t expected = DLRO_OK;
  layout.byte_offset = 4;
  if (question->foreign) {
    tensor = foreign_versioned(layout, 0, read_only ? READ_ONLY_FLAG : 0, &ended);
  } else {
    CHECK_OK(dlro_tensor_export(&layout, 0, question->mutability, &ended, count_release, &tensor));
  }
  before = *tensor;
  options.copy = question->copy;
  options.policy = question->policy;
  options.device_type = question->device_type;
  options.device_id = question->device_type == 0 ? 5 : 0; /* not read if the type is 0 */
  options.flags = question->fold ? DLRO_EXPORT_FOLD_BYTE_OFFSET : 0;
  if (!copied && !versioned && read_only && question->policy == DLRO_LEGACY_REFUSE_READ_ONLY) {
    expected = DLRO_ERR_READ_ONLY;
  }
  if (question->device_type == kDLCUDA) expected = DLRO_ERR_DEVICE;
  memset(&out, 0x5a, sizeof out);
  CHECK_STATUS(dlro_tensor_export_for(tensor, question->max_version, &options, &out), expected,
               expected == DLRO_ERR_DEVICE ? "(type 2, id 0) is wanted" : "read-only");
  if (expected != DLRO_OK) {
    CHECK(is_zeroed(&out) && ended == 0 && memcmp(tensor, &before, sizeof before) == 0);
    dlro_tensor_release(tensor);
    CHECK(ended == 1);
    return;
  }
  CHECK((out.versioned != NULL) == versioned && (out.legacy != NULL) == !versioned);
  check_names(&out);
  CHECK(ended == (copied ? 1 : 0));
  answer = versioned ? &out.versioned->dl_tensor : &out.legacy->dl_tensor;
  CHECK(answer->ndim == 1 && answer->shape[0] == 8 && answer->strides != NULL && answer->strides[0] == 1);
  CHECK(memcmp((const char *)answer->data + answer->byte_offset, elements + 1, 8 * sizeof(float)) == 0);
  if (copied) {
    CHECK(answer->byte_offset == 0 && (uintptr_t)answer->data % 256 == 0);
  } else {
    CHECK(answer->data == (void *)(elements + (question->fold ? 1 : 0)));
    CHECK(answer->byte_offset == (question->fold ? 0 : 4)); /* case E2 */
  }
  if (versioned) {
    CHECK(out.versioned->version.major == 1 && out.versioned->version.minor == 0);
    CHECK(out.versioned->flags == (copied ? COPIED_FLAG : read_only ? READ_ONLY_FLAG : 0));
    if (!copied && !(question->foreign && question->fold)) CHECK(out.versioned == tensor);
    out.versioned->deleter(out.versioned);
  } else {
    out.legacy->deleter(out.legacy);
  }
  CHECK(ended == 1);
}

static void negotiation(void) {
  static const DLPackVersion versions[5] = {{0, 8}, {0, 0}, {1, 0}, {1, 9}, {2, 0}};
  static const int32_t devices[3] = {0, kDLCPU, kDLCUDA};
  struct question question;
  int i, j, k, l, m, n, o;
  for (i = -1; i < 5; i++) {
    for (j = 0; j < 2; j++) {
      for (k = 0; k < (j == 0 ? 3 : 2); k++) {
        for (l = 0; l < 2; l++) {
          for (m = 0; m < 3; m++) {
            for (n = 0; n < 3; n++) {
              for (o = 0; o < 2; o++) {
                question.max_version = i < 0 ? NULL : &versions[i];
                question.foreign = j == 1;
                question.mutability = mutabilities[k];
                question.policy = (uint32_t)l;
                question.copy = copies[m];
                question.device_type = devices[n];
                question.fold = o == 1;
                ask(&question);
              }
            }
          }
        }
      }
    }
  }
  checked("cases A1, A6, C3, C4, E2, H2, B18: max_version x rights x maker x policy x copy x device x fold");

  {
    int released;
    dlro_exported out;
    CHECK_OK(dlro_tensor_export_for(ours(DLRO_MUTABILITY_WRITABLE, 0, &released), NULL, NULL, &out));
    CHECK(out.legacy != NULL && out.versioned == NULL);
    out.legacy->deleter(out.legacy);
    CHECK(released == 1);
  }
  checked("case C4: a consumer that says nothing gets the legacy struct");
}

static void refuse_negotiation(struct DLManagedTensorVersioned *tensor, int *deleted, const DLPackVersion *max_version,
                               const dlro_export_options *options, int32_t expected, const char *text) {
  dlro_exported out;
  memset(&out, 0x5a, sizeof out);
  CHECK_STATUS(dlro_tensor_export_for(tensor, max_version, options, &out), expected, text);
  CHECK(is_zeroed(&out) && *deleted == 0);
  dlro_tensor_release(tensor);
  CHECK(*deleted == 1);
}

static void negotiation_refusals(void) {
  const DLPackVersion one = {1, 0};
  const DLDataType float4 = {kDLFloat4_e2m1fn, 4, 1}, nonsense = {0, 7, 1};
  const dlro_export_options defaults = DLRO_EXPORT_OPTIONS_INIT;
  dlro_export_options options = DLRO_EXPORT_OPTIONS_INIT;
  struct {
    dlro_export_options known;
    uint64_t tail;
  } longer = {DLRO_EXPORT_OPTIONS_INIT, 1};
  dlro_exported out;
  DLTensor layout = floats_3_4();
  int deleted;
  memset(&out, 0x5a, sizeof out);
  CHECK_STATUS(dlro_tensor_export_for(NULL, &one, NULL, &out), DLRO_ERR_NULL, "tensor is NULL");
  CHECK(is_zeroed(&out));
  {
    struct DLManagedTensorVersioned *tensor = foreign_versioned(layout, 0, 0, &deleted);
    CHECK_STATUS(dlro_tensor_export_for(tensor, &one, NULL, NULL), DLRO_ERR_NULL, "out is NULL");
    CHECK(deleted == 0);
    dlro_tensor_release(tensor);
  }
  options.copy = 3;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_ARGUMENT,
                     "copy is 3");
  options = defaults;
  options.policy = 2;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_ARGUMENT,
                     "policy is 2");
  options = defaults;
  options.flags = 2;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_ARGUMENT,
                     "flags is 2");
  options = defaults;
  options.reserved = 7;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_ARGUMENT,
                     "reserved is 7");
  options = defaults;
  options.struct_size = 4;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_ARGUMENT,
                     "struct_size is 4");
  longer.known.struct_size = sizeof longer;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &longer.known, DLRO_ERR_ARGUMENT,
                     "at offset 32");
  refuse_negotiation(foreign_of_version_2(&deleted), &deleted, &one, NULL, DLRO_ERR_VERSION, "version 2.0");
  layout.ndim = -1;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, NULL, DLRO_ERR_BOUNDS, "ndim is -1");
  layout = floats_3_4();
  layout.dtype = nonsense;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, NULL, DLRO_ERR_DTYPE, "bits 7");
  layout.dtype = float4;
  refuse_negotiation(foreign_versioned(layout, 1, PADDED_FLAG, &deleted), &deleted, NULL, NULL, DLRO_ERR_DTYPE,
                     "padded");
  options = defaults;
  options.copy = DLRO_COPY_ALWAYS; /* the copy would be padded too, and the source stays alive */
  refuse_negotiation(foreign_versioned(layout, 1, PADDED_FLAG, &deleted), &deleted, NULL, &options, DLRO_ERR_DTYPE,
                     "padded");
  CHECK_OK(dlro_tensor_export_for(foreign_versioned(layout, 1, PADDED_FLAG, &deleted), &one, NULL, &out));
  CHECK(out.versioned->flags == PADDED_FLAG);
  dlro_tensor_release(out.versioned);
  CHECK(deleted == 1);
  layout = floats_3_4();
  layout.device.device_type = kDLCUDA;
  layout.device.device_id = 2;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_DEVICE,
                     "(type 2, id 2)");
  options = defaults;
  options.device_type = kDLCUDA;
  options.device_id = 1;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, NULL, &options, DLRO_ERR_DEVICE,
                     "(type 2, id 1) is wanted");
  options = defaults;
  options.flags = DLRO_EXPORT_FOLD_BYTE_OFFSET;
  layout.device.device_type = kDLOpenCL;
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, &one, &options, DLRO_ERR_DEVICE, "(type 4");
  refuse_negotiation(foreign_versioned(layout, 0, 0, &deleted), &deleted, NULL, &options, DLRO_ERR_DEVICE, "(type 4");
  checked("negotiation refuses by name, zeroes its answer and leaves the tensor to the caller");

  /* Memory of a device: numbers pass through, and an address may be added to. */
  layout.device.device_type = kDLCUDA;
  layout.byte_offset = 16;
  options.device_type = kDLCUDA;
  options.device_id = 2;
  CHECK_OK(dlro_tensor_export_for(foreign_versioned(layout, 0, READ_ONLY_FLAG, &deleted), &one, &options, &out));
  CHECK(out.versioned->dl_tensor.device.device_type == kDLCUDA && out.versioned->dl_tensor.device.device_id == 2);
  CHECK(out.versioned->dl_tensor.data == (void *)(elements + 4) && out.versioned->dl_tensor.byte_offset == 0);
  CHECK(out.versioned->flags == READ_ONLY_FLAG && deleted == 0);
  dlro_tensor_release(out.versioned);
  CHECK(deleted == 1);
  /* NULL strides are never sent, unknown flags are. */
  layout = floats_3_4();
  layout.strides = NULL;
  CHECK_OK(dlro_tensor_export_for(foreign_versioned(layout, 9, UNKNOWN_FLAG | READ_ONLY_FLAG, &deleted), &one, NULL,
                                  &out));
  CHECK(out.versioned->dl_tensor.strides != NULL && out.versioned->dl_tensor.strides[0] == 4);
  CHECK(out.versioned->flags == (UNKNOWN_FLAG | READ_ONLY_FLAG) && out.versioned->version.minor == 9 && deleted == 0);
  dlro_tensor_release(out.versioned);
  CHECK(deleted == 1);
  /* Empty: nothing to add an offset to. */
  {
    int64_t empty[2] = {0, 4};
    layout = host_tensor(NULL, FLOAT32, 2, empty, NULL);
    layout.byte_offset = 16;
    options = defaults;
    options.flags = DLRO_EXPORT_FOLD_BYTE_OFFSET;
    CHECK_OK(dlro_tensor_export_for(foreign_versioned(layout, 0, 0, &deleted), &one, &options, &out));
    CHECK(out.versioned->dl_tensor.data == NULL && out.versioned->dl_tensor.byte_offset == 0 && deleted == 0);
    dlro_tensor_release(out.versioned);
    CHECK(deleted == 1);
  }
  checked("cases C5, D1, E2, G1: device ids, unknown flags, strides and empty tensors through negotiation");
}

/* --- exchange tables --- */

static int a_function(void) { return 0; }

static DLPackExchangeAPI a_table(uint32_t major, DLPackExchangeAPIHeader *previous) {
  DLPackExchangeAPI table;
  table.header.version.major = major;
  table.header.version.minor = 0;
  table.header.prev_api = previous;
  table.managed_tensor_allocator = (DLPackManagedTensorAllocator)(void (*)(void))a_function;
  table.managed_tensor_from_py_object_no_sync = (DLPackManagedTensorFromPyObjectNoSync)(void (*)(void))a_function;
  table.managed_tensor_to_py_object_no_sync = (DLPackManagedTensorToPyObjectNoSync)(void (*)(void))a_function;
  table.dltensor_from_py_object_no_sync = (DLPackDLTensorFromPyObjectNoSync)(void (*)(void))a_function;
  table.current_work_stream = (DLPackCurrentWorkStream)(void (*)(void))a_function;
  return table;
}

/* A table of a later version: only the header is known. */
static DLPackExchangeAPIHeader *later_table(uint32_t major, DLPackExchangeAPIHeader *previous) {
  DLPackExchangeAPIHeader *header = (DLPackExchangeAPIHeader *)malloc(sizeof *header);
  header->version.major = major;
  header->version.minor = 7;
  header->prev_api = previous;
  return header;
}

static void exchange_tables(void) {
  DLPackExchangeAPI first = a_table(1, NULL);
  DLPackExchangeAPIHeader *second = later_table(2, &first.header), *third = later_table(3, second);
  DLPackExchangeAPIHeader *chain[65];
  const DLPackExchangeAPI *found = STALE(const DLPackExchangeAPI);
  int i;
  CHECK_STATUS(dlro_exchange_api_select(NULL, &found), DLRO_ERR_NULL, "newest is NULL");
  CHECK(found == NULL);
  CHECK_STATUS(dlro_exchange_api_select(third, NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK_OK(dlro_exchange_api_select(&first.header, &found));
  CHECK(found == &first);
  CHECK_OK(dlro_exchange_api_select(third, &found));
  CHECK(found == &first);
  second->prev_api = NULL;
  CHECK_STATUS(dlro_exchange_api_select(third, &found), DLRO_ERR_VERSION,
               "no table of major version 1; the last table looked at has version 2.7");
  CHECK(found == NULL);
  third->prev_api = NULL;
  CHECK_STATUS(dlro_exchange_api_select(third, &found), DLRO_ERR_VERSION, "3.7");
  third->prev_api = third;
  CHECK_STATUS(dlro_exchange_api_select(third, &found), DLRO_ERR_VERSION, "3.7");
  third->prev_api = second;
  second->prev_api = third;
  CHECK_STATUS(dlro_exchange_api_select(third, &found), DLRO_ERR_VERSION, "7");
  free(second);
  free(third);
  for (i = 64; i >= 0; i--) chain[i] = later_table(2 + (uint32_t)(64 - i), i == 64 ? &first.header : chain[i + 1]);
  CHECK_OK(dlro_exchange_api_select(chain[2], &found)); /* 63 later tables, and ours is the 64th */
  CHECK(found == &first);
  CHECK_STATUS(dlro_exchange_api_select(chain[1], &found), DLRO_ERR_VERSION, "2.7");
  CHECK(found == NULL);
  for (i = 0; i < 65; i++) free(chain[i]);
  checked("case J1: chains of exchange tables: 3 -> 2 -> 1, 3 -> NULL, loops, the 64th");

  first.dltensor_from_py_object_no_sync = NULL;
  CHECK_OK(dlro_exchange_api_select(&first.header, &found));
  first = a_table(1, NULL);
  first.managed_tensor_allocator = NULL;
  CHECK_STATUS(dlro_exchange_api_select(&first.header, &found), DLRO_ERR_ARGUMENT, "managed_tensor_allocator is NULL");
  CHECK(found == NULL);
  first = a_table(1, NULL);
  first.managed_tensor_from_py_object_no_sync = NULL;
  CHECK_STATUS(dlro_exchange_api_select(&first.header, &found), DLRO_ERR_ARGUMENT,
               "managed_tensor_from_py_object_no_sync is NULL");
  first = a_table(1, NULL);
  first.managed_tensor_to_py_object_no_sync = NULL;
  CHECK_STATUS(dlro_exchange_api_select(&first.header, &found), DLRO_ERR_ARGUMENT,
               "managed_tensor_to_py_object_no_sync is NULL");
  first = a_table(1, NULL);
  first.current_work_stream = NULL;
  CHECK_STATUS(dlro_exchange_api_select(&first.header, &found), DLRO_ERR_ARGUMENT, "current_work_stream is NULL");
  checked("case J1: every function of a table must be there but dltensor_from_py_object_no_sync");
}

/* --- the allocator of an exchange table --- */

struct error_context {
  int calls;
  char kind[32], message[256];
};

static void set_error(void *context, const char *kind, const char *message) {
  struct error_context *error = (struct error_context *)context;
  error->calls++;
  snprintf(error->kind, sizeof error->kind, "%s", kind);
  snprintf(error->message, sizeof error->message, "%s", message);
}

static void refuse_allocation(DLTensor *prototype, const char *kind, const char *text) {
  struct error_context error = {0, "", ""};
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  CHECK(dlro_managed_tensor_allocator(prototype, &tensor, &error, set_error) == -1);
  CHECK(tensor == NULL && error.calls == 1 && strcmp(error.kind, kind) == 0 && strstr(error.message, text) != NULL);
  CHECK(strcmp(error.message, dlro_last_error_message()) == 0);
  tensor = STALE(struct DLManagedTensorVersioned);
  CHECK(dlro_managed_tensor_allocator(prototype, &tensor, NULL, NULL) == -1 && tensor == NULL);
}

static void allocator(void) {
  /* Its signature is DLPack's. */
  const DLPackManagedTensorAllocator allocate = dlro_managed_tensor_allocator;
  const DLDataType float8 = {kDLFloat8_e4m3fn, 8, 1}, no_bool = {kDLBool, 1, 1};
  struct error_context error = {0, "", ""};
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  int64_t shape[2] = {3, 5};
  /* Everything that must not be read is garbage. */
  DLTensor prototype = host_tensor(STALE(void), FLOAT32, 2, shape, STALE(int64_t));
  const char *data;
  size_t i;
  prototype.byte_offset = UINT64_MAX;
  CHECK(allocate(&prototype, &tensor, &error, set_error) == 0 && error.calls == 0);
  CHECK(tensor->version.major == 1 && tensor->version.minor == 0 && tensor->flags == 0 && tensor->deleter != NULL);
  CHECK(tensor->dl_tensor.strides[0] == 5 && tensor->dl_tensor.strides[1] == 1 && tensor->dl_tensor.byte_offset == 0);
  CHECK(tensor->dl_tensor.shape != shape && memcmp(tensor->dl_tensor.shape, shape, sizeof shape) == 0);
  CHECK(tensor->dl_tensor.device.device_type == kDLCPU && tensor->dl_tensor.device.device_id == 0);
  CHECK_OK(dlro_tensor_validate(tensor));
  data = (const char *)address_of(tensor);
  CHECK((uintptr_t)data % 256 == 0);
  for (i = 0; i < 15 * sizeof(float); i++) CHECK(data[i] == 0);
  tensor->deleter(tensor);
  prototype.dtype = float8;
  CHECK(allocate(&prototype, &tensor, &error, set_error) == 0 && error.calls == 0 && tensor->version.minor == 1);
  tensor->deleter(tensor);
  prototype.ndim = 0;
  prototype.shape = STALE(int64_t);
  CHECK(allocate(&prototype, &tensor, NULL, NULL) == 0 && tensor->dl_tensor.ndim == 0);
  tensor->deleter(tensor);
  checked("case J3: the allocator reads shape, dtype, device only, and makes a whole tensor");

  refuse_allocation(NULL, "ValueError", "prototype is NULL");
  prototype.ndim = 2;
  prototype.shape = NULL;
  refuse_allocation(&prototype, "ValueError", "shape is NULL");
  prototype.shape = shape;
  shape[1] = -5;
  refuse_allocation(&prototype, "ValueError", "shape[1] is -5");
  shape[0] = shape[1] = INT64_MAX;
  refuse_allocation(&prototype, "ValueError", "does not fit");
  shape[0] = shape[1] = 2;
  prototype.ndim = -2;
  refuse_allocation(&prototype, "ValueError", "ndim is -2");
  prototype.ndim = 2;
  prototype.dtype = no_bool;
  refuse_allocation(&prototype, "BufferError", "is not a bool");
  prototype.dtype = FLOAT32;
  prototype.device.device_type = kDLCUDA;
  refuse_allocation(&prototype, "BufferError", "(type 2, id 0)");
  prototype.device.device_type = kDLCPU;
  prototype.device.device_id = 1;
  refuse_allocation(&prototype, "BufferError", "(type 1, id 1)");
  prototype.device.device_id = 0;
  CHECK(dlro_managed_tensor_allocator(&prototype, NULL, &error, set_error) == -1);
  CHECK(error.calls == 1 && strcmp(error.kind, "ValueError") == 0 && strcmp(error.message, "out is NULL") == 0);
  checked("case J3: a failing allocator calls SetError once and leaves NULL");
}

int main(void) {
  import_matrix();
  import_defaults();
  import_null_deleter();
  import_odd_descriptors();
  import_refusals();
  export_policies();
  export_refusals();
  hops_keep_rights();
  ends_on_any_thread();
  negotiation();
  negotiation_refusals();
  exchange_tables();
  allocator();
  return 0;
}
