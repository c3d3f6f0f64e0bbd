/* DLPack's ABI as this library sees it: sizes, offsets and numbers, against the numbers of the specification and,
 * with -DBEFORE, against a real dlpack.h that comes first. */
#ifdef BEFORE
#include <dlpack/dlpack.h>
#endif
#include "check.h"

#define OFFSET(type, field, expected) CHECK(offsetof(type, field) == (expected))

int main(void) {
  int64_t shape[1] = {3};
  float elements[3] = {1, 2, 3};
  DLTensor layout = {elements, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 4};
  struct DLManagedTensorVersioned *tensor;
  uint32_t *words;

  CHECK(sizeof(DLPackVersion) == 8 && sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4 && sizeof(DLTensor) == 48);
  CHECK(sizeof(DLManagedTensor) == 64 && sizeof(struct DLManagedTensorVersioned) == 80);
  OFFSET(DLPackVersion, minor, 4);
  OFFSET(DLDevice, device_id, 4);
  OFFSET(DLDataType, bits, 1);
  OFFSET(DLDataType, lanes, 2);
  OFFSET(DLTensor, data, 0);
  OFFSET(DLTensor, device, 8);
  OFFSET(DLTensor, ndim, 16);
  OFFSET(DLTensor, dtype, 20);
  OFFSET(DLTensor, shape, 24);
  OFFSET(DLTensor, strides, 32);
  OFFSET(DLTensor, byte_offset, 40);
  OFFSET(DLManagedTensor, dl_tensor, 0);
  OFFSET(DLManagedTensor, manager_ctx, 48);
  OFFSET(DLManagedTensor, deleter, 56);
  OFFSET(struct DLManagedTensorVersioned, version, 0);
  OFFSET(struct DLManagedTensorVersioned, manager_ctx, 8);
  OFFSET(struct DLManagedTensorVersioned, deleter, 16);
  OFFSET(struct DLManagedTensorVersioned, flags, 24);
  OFFSET(struct DLManagedTensorVersioned, dl_tensor, 32);
  checked("sizes and offsets of DLPack's structs");

#if defined(DLPACK_MAJOR_VERSION) && DLPACK_MINOR_VERSION >= 2
  CHECK(sizeof(DLPackExchangeAPIHeader) == 16 && sizeof(DLPackExchangeAPI) == 56);
  OFFSET(DLPackExchangeAPIHeader, prev_api, 8);
  OFFSET(DLPackExchangeAPI, managed_tensor_allocator, 16);
  OFFSET(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync, 24);
  OFFSET(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync, 32);
  OFFSET(DLPackExchangeAPI, dltensor_from_py_object_no_sync, 40);
  OFFSET(DLPackExchangeAPI, current_work_stream, 48);
  {
    /* The signature is DLPack's. */
    DLPackManagedTensorAllocator allocator = dlro_managed_tensor_allocator;
    CHECK(allocator != NULL);
  }
  CHECK(kDLTrn == 18);
#endif
  CHECK(kDLCPU == 1 && kDLCUDA == 2 && kDLCUDAHost == 3 && kDLOpenCL == 4 && kDLVulkan == 7 && kDLMetal == 8);
  CHECK(kDLVPI == 9 && kDLROCM == 10 && kDLROCMHost == 11 && kDLExtDev == 12 && kDLCUDAManaged == 13);
  CHECK(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLOpaqueHandle == 3 && kDLBfloat == 4 && kDLComplex == 5);
#if defined(DLPACK_MAJOR_VERSION)
  CHECK(kDLOneAPI == 14 && kDLWebGPU == 15 && kDLHexagon == 16 && kDLMAIA == 17 && kDLBool == 6);
#if DLPACK_MINOR_VERSION >= 1
  CHECK(kDLFloat8_e3m4 == 7 && kDLFloat8_e4m3 == 8 && kDLFloat8_e4m3b11fnuz == 9 && kDLFloat8_e4m3fn == 10);
  CHECK(kDLFloat8_e4m3fnuz == 11 && kDLFloat8_e5m2 == 12 && kDLFloat8_e5m2fnuz == 13 && kDLFloat8_e8m0fnu == 14);
  CHECK(kDLFloat6_e2m3fn == 15 && kDLFloat6_e3m2fn == 16 && kDLFloat4_e2m1fn == 17);
#endif
#endif
  CHECK(DLPACK_FLAG_BITMASK_READ_ONLY == 1 && DLPACK_FLAG_BITMASK_IS_COPIED == 2);
  CHECK(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED == 4);
  checked("DLPack's numbers");

  /* What the library writes is where this program reads it. */
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  words = (uint32_t *)(void *)tensor;
  CHECK(words[0] == 1 && words[1] == 0);
  CHECK(tensor->version.major == 1 && tensor->flags == 1 && tensor->deleter != NULL && tensor->manager_ctx != NULL);
  CHECK(tensor->dl_tensor.data == elements && tensor->dl_tensor.byte_offset == 4 && tensor->dl_tensor.ndim == 1);
  CHECK(tensor->dl_tensor.shape != shape && tensor->dl_tensor.shape[0] == 3 && tensor->dl_tensor.strides[0] == 1);
  CHECK(tensor->dl_tensor.dtype.code == kDLFloat && tensor->dl_tensor.dtype.bits == 32);
  CHECK(tensor->dl_tensor.dtype.lanes == 1 && tensor->dl_tensor.device.device_type == kDLCPU);
  dlro_tensor_release(tensor);
  checked("the library writes the fields where the header puts them");

  CHECK(sizeof(dlro_status) == 4 && sizeof(dlro_access) == 4 && sizeof(dlro_mutability) == 4);
  CHECK(sizeof(dlro_import_options) == 40 && sizeof(dlro_export_options) == 32 && sizeof(dlro_exported) == 32);
  OFFSET(dlro_import_options, access, 8);
  OFFSET(dlro_import_options, alignment, 24);
  OFFSET(dlro_import_options, threads, 36);
  OFFSET(dlro_export_options, copy, 8);
  OFFSET(dlro_exported, capsule_name, 16);
  checked("sizes of this library's own structs");
  return 0;
}
