/*
 * Layout: sizes, offsets and numbers, against the figures of DLPack's ABI on 64-bit machines, and against what the
 * library itself writes and reads. With -DDLPACK_FIRST a real dlpack.h declares the structs (tests/headers.rs).
 */
#ifdef DLPACK_FIRST
#include <dlpack/dlpack.h>
#if defined(DLPACK_MAJOR_VERSION)
#define FOUND_DLPACK (DLPACK_MAJOR_VERSION * 100 + DLPACK_MINOR_VERSION * 10)
#else
#define FOUND_DLPACK DLPACK_VERSION
#endif
#else
#define FOUND_DLPACK 130
#endif
#include "check.h"

typedef struct DLManagedTensorVersioned versioned;

#define SIZE(type, bytes) CHECK(sizeof(type) == (bytes))
#define FIELD(type, field, offset, bytes) \
  CHECK(offsetof(type, field) == (offset) && sizeof(((type *)NULL)->field) == (bytes))

static void structs(void) {
  SIZE(void *, 8);
  SIZE(DLPackVersion, 8);
  FIELD(DLPackVersion, major, 0, 4);
  FIELD(DLPackVersion, minor, 4, 4);
  SIZE(DLDeviceType, 4);
  SIZE(DLDevice, 8);
  FIELD(DLDevice, device_type, 0, 4);
  FIELD(DLDevice, device_id, 4, 4);
  SIZE(DLDataType, 4);
  FIELD(DLDataType, code, 0, 1);
  FIELD(DLDataType, bits, 1, 1);
  FIELD(DLDataType, lanes, 2, 2);
  SIZE(DLTensor, 48);
  FIELD(DLTensor, data, 0, 8);
  FIELD(DLTensor, device, 8, 8);
  FIELD(DLTensor, ndim, 16, 4);
  FIELD(DLTensor, dtype, 20, 4);
  FIELD(DLTensor, shape, 24, 8);
  FIELD(DLTensor, strides, 32, 8);
  FIELD(DLTensor, byte_offset, 40, 8);
  SIZE(DLManagedTensor, 64);
  FIELD(DLManagedTensor, dl_tensor, 0, 48);
  FIELD(DLManagedTensor, manager_ctx, 48, 8);
  FIELD(DLManagedTensor, deleter, 56, 8);
  SIZE(versioned, 80);
  FIELD(versioned, version, 0, 8);
  FIELD(versioned, manager_ctx, 8, 8);
  FIELD(versioned, deleter, 16, 8);
  FIELD(versioned, flags, 24, 8);
  FIELD(versioned, dl_tensor, 32, 48);
#if FOUND_DLPACK >= 120
  SIZE(DLPackExchangeAPIHeader, 16);
  FIELD(DLPackExchangeAPIHeader, version, 0, 8);
  FIELD(DLPackExchangeAPIHeader, prev_api, 8, 8);
  SIZE(DLPackExchangeAPI, 56);
  FIELD(DLPackExchangeAPI, header, 0, 16);
  FIELD(DLPackExchangeAPI, managed_tensor_allocator, 16, 8);
  FIELD(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync, 24, 8);
  FIELD(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync, 32, 8);
  FIELD(DLPackExchangeAPI, dltensor_from_py_object_no_sync, 40, 8);
  FIELD(DLPackExchangeAPI, current_work_stream, 48, 8);
#endif
  checked("DLPack's structs: sizes and offsets");

  SIZE(dlro_status, 4);
  SIZE(dlro_mutability, 4);
  SIZE(dlro_access, 4);
  SIZE(dlro_copy, 4);
  SIZE(dlro_layout, 4);
  SIZE(dlro_legacy_policy, 4);
  SIZE(dlro_map_mode, 4);
  SIZE(dlro_import_options, 40);
  FIELD(dlro_import_options, struct_size, 0, 8);
  FIELD(dlro_import_options, access, 8, 4);
  FIELD(dlro_import_options, copy, 12, 4);
  FIELD(dlro_import_options, layout, 16, 4);
  FIELD(dlro_import_options, flags, 20, 4);
  FIELD(dlro_import_options, alignment, 24, 4);
  FIELD(dlro_import_options, device_type, 28, 4);
  FIELD(dlro_import_options, device_id, 32, 4);
  FIELD(dlro_import_options, threads, 36, 4);
  SIZE(dlro_export_options, 32);
  FIELD(dlro_export_options, struct_size, 0, 8);
  FIELD(dlro_export_options, copy, 8, 4);
  FIELD(dlro_export_options, policy, 12, 4);
  FIELD(dlro_export_options, flags, 16, 4);
  FIELD(dlro_export_options, device_type, 20, 4);
  FIELD(dlro_export_options, device_id, 24, 4);
  FIELD(dlro_export_options, reserved, 28, 4);
  SIZE(dlro_exported, 32);
  FIELD(dlro_exported, versioned, 0, 8);
  FIELD(dlro_exported, legacy, 8, 8);
  FIELD(dlro_exported, capsule_name, 16, 8);
  FIELD(dlro_exported, used_capsule_name, 24, 8);
  checked("the library's structs: sizes and offsets");
}

static void numbers(void) {
  CHECK(kDLCPU == 1 && kDLCUDA == 2 && kDLCUDAHost == 3 && kDLOpenCL == 4 && kDLVulkan == 7 && kDLMetal == 8);
  CHECK(kDLVPI == 9 && kDLROCM == 10 && kDLROCMHost == 11 && kDLExtDev == 12 && kDLCUDAManaged == 13);
  CHECK(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLOpaqueHandle == 3 && kDLBfloat == 4 && kDLComplex == 5);
#if FOUND_DLPACK >= 70
  CHECK(kDLOneAPI == 14 && kDLWebGPU == 15 && kDLHexagon == 16);
#endif
#if FOUND_DLPACK >= 80
  CHECK(kDLBool == 6);
#endif
#if FOUND_DLPACK >= 100
  CHECK(DLPACK_MAJOR_VERSION == 1 && kDLMAIA == 17);
#endif
#if FOUND_DLPACK >= 110
  CHECK(kDLFloat8_e3m4 == 7 && kDLFloat8_e4m3 == 8 && kDLFloat8_e4m3b11fnuz == 9 && kDLFloat8_e4m3fn == 10);
  CHECK(kDLFloat8_e4m3fnuz == 11 && kDLFloat8_e5m2 == 12 && kDLFloat8_e5m2fnuz == 13 && kDLFloat8_e8m0fnu == 14);
  CHECK(kDLFloat6_e2m3fn == 15 && kDLFloat6_e3m2fn == 16 && kDLFloat4_e2m1fn == 17);
#endif
#if FOUND_DLPACK >= 120
  CHECK(kDLTrn == 18);
#endif
  CHECK(DLPACK_FLAG_BITMASK_READ_ONLY == 1);
  CHECK(DLPACK_FLAG_BITMASK_IS_COPIED == 2);
  CHECK(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED == 4);
  checked("DLPack's device types, type codes and flags");

  CHECK(DLRO_MUTABILITY_WRITABLE == 0 && DLRO_MUTABILITY_READ_ONLY == 1 && DLRO_MUTABILITY_IMMUTABLE == 2);
  CHECK(DLRO_ACCESS_READ == 0 && DLRO_ACCESS_WRITE == 1 && DLRO_ACCESS_IMMUTABLE == 2);
  CHECK(DLRO_COPY_IF_NEEDED == 0 && DLRO_COPY_NEVER == 1 && DLRO_COPY_ALWAYS == 2);
  CHECK(DLRO_LAYOUT_ANY == 0 && DLRO_LAYOUT_ROW_MAJOR == 1 && DLRO_LAYOUT_COLUMN_MAJOR == 2);
  CHECK(DLRO_LAYOUT_NON_NEGATIVE == 3 && DLRO_IMPORT_ADOPT == 1 && DLRO_IMPORT_HOST == 2);
  CHECK(DLRO_LEGACY_REFUSE_READ_ONLY == 0 && DLRO_LEGACY_CONSUMER_NEVER_WRITES == 1);
  CHECK(DLRO_EXPORT_FOLD_BYTE_OFFSET == 1 && DLRO_MAP_READ_ONLY == 0 && DLRO_MAP_COPY_ON_WRITE == 1);
  CHECK(DLRO_OK == 0 && DLRO_ERR_READ_ONLY == 1 && DLRO_ERR_NOT_IMMUTABLE == 2 && DLRO_ERR_BUSY == 3);
  CHECK(DLRO_ERR_COPY_NEEDED == 4 && DLRO_ERR_VERSION == 5 && DLRO_ERR_DTYPE == 6 && DLRO_ERR_DEVICE == 7);
  CHECK(DLRO_ERR_LAYOUT == 8 && DLRO_ERR_NULL == 100 && DLRO_ERR_ARGUMENT == 101 && DLRO_ERR_BOUNDS == 102);
  CHECK(DLRO_ERR_NO_MEMORY == 200 && DLRO_ERR_IO == 201 && DLRO_ERR_FORMAT == 202);
  CHECK(DLRO_ERR_UNSUPPORTED == 203 && DLRO_ERR_INTERNAL == 204);
  checked("the library's numbers, which never change");
}

/* What lies at an offset, whatever any header says is there. */
static uint64_t at(const void *start, size_t offset, size_t bytes) {
  uint64_t value = 0;
  CHECK(bytes <= sizeof value);
  memcpy(&value, (const char *)start + offset, bytes); /* little-endian machines only, as the numbers are */
  return value;
}

static void library_writes(void) {
  int64_t shape[] = {3, 5};
  DLTensor prototype;
  dlro_exported exported;
  versioned *tensor;
  uint64_t dimensions;
  memset(&prototype, 0, sizeof prototype);
  prototype.device.device_type = kDLCPU;
  prototype.ndim = 2;
  prototype.dtype.code = kDLInt;
  prototype.dtype.bits = 16;
  prototype.dtype.lanes = 2;
  prototype.shape = shape;
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  CHECK(at(tensor, 0, 4) == 1 && at(tensor, 4, 4) == 0);
  CHECK(at(tensor, 8, 8) != 0 && at(tensor, 16, 8) != 0 && at(tensor, 24, 8) == 0);
  CHECK(at(tensor, 32, 8) % 256 == 0 && at(tensor, 40, 4) == 1 && at(tensor, 44, 4) == 0);
  CHECK(at(tensor, 48, 4) == 2 && at(tensor, 52, 1) == 0 && at(tensor, 53, 1) == 16 && at(tensor, 54, 2) == 2);
  dimensions = at(tensor, 56, 8);
  CHECK(((const int64_t *)(uintptr_t)dimensions)[0] == 3 && ((const int64_t *)(uintptr_t)dimensions)[1] == 5);
  dimensions = at(tensor, 64, 8);
  CHECK(((const int64_t *)(uintptr_t)dimensions)[0] == 5 && ((const int64_t *)(uintptr_t)dimensions)[1] == 1);
  CHECK(at(tensor, 72, 8) == 0);
  checked("a managed tensor, byte by byte");

  CHECK_OK(dlro_tensor_export_for(tensor, NULL, NULL, &exported));
  CHECK(at(&exported, 0, 8) == 0 && at(&exported, 8, 8) != 0);
  CHECK(strcmp((const char *)(uintptr_t)at(&exported, 16, 8), "dltensor") == 0);
  CHECK(strcmp((const char *)(uintptr_t)at(&exported, 24, 8), "used_dltensor") == 0);
  CHECK(at(exported.legacy, 0, 8) % 256 == 0 && at(exported.legacy, 8, 4) == 1 && at(exported.legacy, 16, 4) == 2);
  CHECK(at(exported.legacy, 48, 8) != 0 && at(exported.legacy, 56, 8) != 0);
  exported.legacy->deleter(exported.legacy);
  checked("what a consumer gets and a legacy tensor, byte by byte");
}

/* The library names the field that it finds at an offset. */
static void library_reads(void) {
  static const struct {
    size_t offset;
    dlro_status status;
    const char *sentence;
  } of_import[] = {{0, DLRO_ERR_ARGUMENT, "options"},      {8, DLRO_ERR_ARGUMENT, "access is 77"},
                   {12, DLRO_ERR_ARGUMENT, "copy is 77"},  {16, DLRO_ERR_ARGUMENT, "layout is 77"},
                   {20, DLRO_ERR_ARGUMENT, "flags is 77"}, {24, DLRO_ERR_ARGUMENT, "alignment is 77"},
                   {28, DLRO_ERR_DEVICE, "(type 77, id 0)"}},
    of_export[] = {{0, DLRO_ERR_ARGUMENT, "options"},      {8, DLRO_ERR_ARGUMENT, "copy is 77"},
                   {12, DLRO_ERR_ARGUMENT, "policy is 77"}, {16, DLRO_ERR_ARGUMENT, "flags is 77"},
                   {20, DLRO_ERR_DEVICE, "(type 77, id 0)"}, {28, DLRO_ERR_ARGUMENT, "reserved is 77"}};
  const uint32_t number = 77;
  DLTensor prototype;
  dlro_exported exported;
  versioned *tensor, *imported;
  size_t i;
  memset(&prototype, 0, sizeof prototype);
  prototype.device.device_type = kDLCPU;
  prototype.dtype.bits = 8;
  prototype.dtype.lanes = 1;
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  for (i = 0; i < sizeof of_import / sizeof of_import[0]; i++) {
    union {
      dlro_import_options options;
      char bytes[128];
    } raw;
    const dlro_import_options defaults = DLRO_IMPORT_OPTIONS_INIT;
    memset(&raw, 1, sizeof raw); /* behind the struct: what a newer caller has, so a wild size is refused */
    raw.options = defaults;
    memcpy(raw.bytes + of_import[i].offset, &number, 4);
    CHECK_STATUS(dlro_tensor_import(tensor, &raw.options, &imported), of_import[i].status,
                 of_import[i].sentence);
  }
  {
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    const uint32_t cpu = 1;
    memcpy((char *)&options + 28, &cpu, 4);
    memcpy((char *)&options + 32, &number, 4);
    CHECK_STATUS(dlro_tensor_import(tensor, &options, &imported), DLRO_ERR_DEVICE, "(type 1, id 77)");
  }
  checked("import options, byte by byte");
  for (i = 0; i < sizeof of_export / sizeof of_export[0]; i++) {
    union {
      dlro_export_options options;
      char bytes[128];
    } raw;
    const dlro_export_options defaults = DLRO_EXPORT_OPTIONS_INIT;
    memset(&raw, 1, sizeof raw);
    raw.options = defaults;
    memcpy(raw.bytes + of_export[i].offset, &number, 4);
    CHECK_STATUS(dlro_tensor_export_for(tensor, NULL, &raw.options, &exported), of_export[i].status,
                 of_export[i].sentence);
  }
  {
    dlro_export_options options = DLRO_EXPORT_OPTIONS_INIT;
    const uint32_t cpu = 1;
    memcpy((char *)&options + 20, &cpu, 4);
    memcpy((char *)&options + 24, &number, 4);
    CHECK_STATUS(dlro_tensor_export_for(tensor, NULL, &options, &exported), DLRO_ERR_DEVICE, "(type 1, id 77)");
  }
  checked("export options, byte by byte");
  dlro_tensor_release(tensor);
}

int main(void) {
  printf("  structs as DLPack %d.%d declares them\n", FOUND_DLPACK / 100, FOUND_DLPACK / 10 % 10);
  structs();
  numbers();
  library_writes();
  library_reads();
  return 0;
}
