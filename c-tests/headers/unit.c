/*
 * Uses all of dlpack_ro.h, in C and in C++; tests/headers.rs compiles it in every language standard.
 *
 * It gets from there: TWICE, INSIDE_EXTERN_C, and DLPACK_FIRST or DLPACK_LAST with EXPECTED_DLPACK, the version of
 * the real dlpack.h, times 100; and names.h, the names that are in the header today: NUMBER(name) for what is a
 * constant expression, TYPE(name) for typedefs, FUNCTION(name) for prototypes.
 */
#if defined(DLPACK_FIRST)
#include <dlpack/dlpack.h>
#if defined(DLPACK_MAJOR_VERSION)
#define FOUND_DLPACK (DLPACK_MAJOR_VERSION * 100 + DLPACK_MINOR_VERSION * 10)
#else
#define FOUND_DLPACK DLPACK_VERSION
#endif
#if FOUND_DLPACK != EXPECTED_DLPACK
#error "this is not the dlpack.h that was meant"
#endif
#else
#define FOUND_DLPACK 130
#endif

#if defined(INSIDE_EXTERN_C) && defined(__cplusplus)
extern "C" {
#endif
#include <dlpack_ro.h>
#if defined(INSIDE_EXTERN_C) && defined(__cplusplus)
}
#endif
#if defined(TWICE)
#include <dlpack_ro.h>
#endif
#if defined(DLPACK_LAST)
#include <dlpack/dlpack.h>
#endif

/* Every constant, where only a constant expression will do. */
#define NUMBER(name) number_##name = (int)(name),
#define TYPE(name)
#define FUNCTION(name)
enum numbers {
#include <names.h>
  number_dlpack_read_only = (int)DLPACK_FLAG_BITMASK_READ_ONLY,
  number_dlpack_is_copied = (int)DLPACK_FLAG_BITMASK_IS_COPIED,
  number_dlpack_padded = (int)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
};
#undef NUMBER
#undef TYPE
#undef FUNCTION

/* In a #if as well, where a cast or sizeof would be an error. */
#if DLRO_VERSION != DLRO_VERSION_MAJOR * 1000000 + DLRO_VERSION_MINOR * 1000 + DLRO_VERSION_PATCH
#error "DLRO_VERSION is not made of its parts"
#endif

/* Every typedef: it is complete, and its name alone is a type in C too. */
#define NUMBER(name)
#define TYPE(name) +sizeof(name *) /* a pointer, since some are opaque */
#define FUNCTION(name)
extern const size_t types;
const size_t types = 0
#include <names.h>
                     + sizeof(DLPackVersion) + sizeof(DLDeviceType) + sizeof(DLDevice) + sizeof(DLDataTypeCode) +
                     sizeof(DLDataType) + sizeof(DLTensor) + sizeof(DLManagedTensor) +
                     sizeof(struct DLManagedTensorVersioned)
#if FOUND_DLPACK >= 120
                     + sizeof(DLPackExchangeAPIHeader) + sizeof(DLPackExchangeAPI)
#endif
    ;
#undef NUMBER
#undef TYPE
#undef FUNCTION

/* Every prototype. */
#define NUMBER(name)
#define TYPE(name)
#define FUNCTION(name) (void (*)(void))(name),
typedef void (*function)(void);
extern const function functions[];
const function functions[] = {
#include <names.h>
    0};

/* Every type of function that is passed in or out. */
static int released;
static void release(void *owner) {
  *(int *)owner += 1;
}
static void set_error(void *context, const char *kind, const char *message) {
  *(const char **)context = kind != NULL ? kind : message;
}
static int (*const allocator)(DLTensor *, struct DLManagedTensorVersioned **, void *,
                              void (*)(void *, const char *, const char *)) = dlro_managed_tensor_allocator;
#if FOUND_DLPACK >= 120
extern const DLPackManagedTensorAllocator allocator_of_dlpack;
const DLPackManagedTensorAllocator allocator_of_dlpack = dlro_managed_tensor_allocator;
#endif

/* The names that the others use are here whichever header came first. */
extern const int devices[], codes[];
const int devices[] = {kDLCPU, kDLCUDA, kDLCUDAHost, kDLROCMHost, kDLExtDev};
const int codes[] = {kDLInt, kDLUInt, kDLFloat, kDLOpaqueHandle, kDLBfloat, kDLComplex};

int unit(DLTensor *layout, DLManagedTensor *legacy, const struct DLPackExchangeAPIHeader *newest);

int unit(DLTensor *layout, DLManagedTensor *legacy, const struct DLPackExchangeAPIHeader *newest) {
  dlro_import_options import_options = DLRO_IMPORT_OPTIONS_INIT;
  dlro_export_options export_options = DLRO_EXPORT_OPTIONS_INIT;
  const DLPackVersion version = {1, 0};
  const struct DLPackExchangeAPI *table = NULL;
  struct DLManagedTensorVersioned *tensor = NULL;
  dlro_exported exported;
  const char *kind = "";
  dlro_status status = dlro_tensor_export(layout, DLPACK_FLAG_BITMASK_IS_COPIED, DLRO_MUTABILITY_READ_ONLY, &released,
                                          release, &tensor);
  if (status != DLRO_OK) {
    return dlro_status_is_exchange_error(status) ? 1 : 2;
  }
  if (tensor->deleter == NULL || tensor->manager_ctx == NULL || tensor->dl_tensor.ndim != layout->ndim) {
    return 3;
  }
  tensor->deleter = NULL;
  legacy->deleter = NULL;
  import_options.access = DLRO_ACCESS_IMMUTABLE;
  import_options.flags = DLRO_IMPORT_ADOPT | DLRO_IMPORT_HOST;
  export_options.policy = DLRO_LEGACY_CONSUMER_NEVER_WRITES;
  if (dlro_legacy_import(legacy, DLRO_MUTABILITY_READ_ONLY, &import_options, &tensor) == DLRO_ERR_READ_ONLY ||
      dlro_exchange_api_select(newest, &table) == DLRO_ERR_VERSION || table == NULL ||
      allocator(layout, &tensor, &kind, set_error) != 0) {
    return 4;
  }
  switch (dlro_tensor_export_for(tensor, &version, &export_options, &exported)) {
  case DLRO_OK:
    return exported.versioned == NULL && exported.legacy != NULL;
  case DLRO_ERR_READ_ONLY:
    return 5;
  default:
    return 6;
  }
}
