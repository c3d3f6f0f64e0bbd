/*
 * dlpack_ro: hand arrays from one framework to another through DLPack without anybody writing what must not be
 * written. Apache-2.0 OR MIT.
 *
 * Chapters: library (dlro_version ... dlro_last_error_copy), export (dlro_tensor_export, dlro_tensor_new,
 * dlro_managed_tensor_allocator), import (dlro_tensor_import), access (dlro_tensor_validate ...
 * dlro_device_is_host), release, share, freeze (dlro_tensor_release, ..._share, ..._freeze), legacy and
 * negotiation (dlro_legacy_import ... dlro_exchange_api_select), copy (dlro_tensor_copy, ..._copy_into), buffer
 * (dlro_buffer_new ... dlro_buffer_tensor_counts), files (dlro_npy_map, dlro_safetensors_map, dlro_archive_...,
 * dlro_npy_save, dlro_safetensors_save), sealed (dlro_tensor_seal, dlro_sealed_import), guard
 * (dlro_guard_install, ..._watch, dlro_watch_release).
 *
 * Words. A managed tensor is a DLManagedTensorVersioned, a legacy tensor a DLManagedTensor. Memory is WRITABLE
 * (whoever holds a tensor over it may write), READ_ONLY (who holds this tensor must not write, somebody else
 * may) or IMMUTABLE (nobody writes while this tensor lives).
 *
 * Rules for every function:
 * - What can fail returns dlro_status; DLRO_OK is 0. dlro_last_error_message() then says in one sentence what
 *   was wrong, with the values.
 * - On failure nothing was consumed, nothing leaked, and the outputs are zeroed. On success the callee owns
 *   what it was given to own.
 * - Outputs are never NULL. Option structs begin with struct_size and have an _INIT macro; NULL means the
 *   defaults.
 * - const means: may run while other const functions run on the same object. Not const means exclusive. A
 *   tensor may be released on any thread, at any time.
 * - Strides count elements; byte_offset, alignments and sizes count bytes.
 * - No function aborts or throws. Running out of memory is DLRO_ERR_NO_MEMORY.
 *
 * Compiles alone and with any dlpack.h from 0.6 on, whichever comes first: include yours first if it is newer
 * than 1.3 and you need its names. For a parser that only runs the preprocessor (cffi, LuaJIT), define DLRO_FFI:
 * it leaves out #include and the layout checks.
 */

/* A dlpack.h that came first decides what the names mean. */
#if defined(DLPACK_DLPACK_H_) && !defined(DLPACK_MAJOR_VERSION) && \
    (!defined(DLPACK_VERSION) || DLPACK_VERSION < 60)
#error "dlpack_ro.h needs DLPack 0.6 or newer: include a newer dlpack.h, or dlpack_ro.h before the old one"
#elif defined(DLPACK_MAJOR_VERSION) && DLPACK_MAJOR_VERSION != 1
#error "dlpack_ro.h speaks DLPack 1: include a dlpack.h of version 1.x, or dlpack_ro.h before the other"
#else


#ifndef DLPACK_RO_H_
#define DLPACK_RO_H_

/* Generated from src/ffi by cbindgen. Do not edit: change the source and run `make header`. */

#if !defined(DLRO_FFI)
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* The version of this header; dlro_version() is that of the library that runs. */
#define DLRO_VERSION_MAJOR 0
#define DLRO_VERSION_MINOR 1
#define DLRO_VERSION_PATCH 0
#define DLRO_VERSION (DLRO_VERSION_MAJOR * 1000000 + DLRO_VERSION_MINOR * 1000 + DLRO_VERSION_PATCH)

/* A status that nobody looks at is a failure that nobody handles. */
#if defined(DLRO_FFI)
#define DLRO_MUST_USE
#elif defined(__GNUC__)
#define DLRO_MUST_USE __attribute__((warn_unused_result))
#elif defined(_MSC_VER)
#define DLRO_MUST_USE _Check_return_
#else
#define DLRO_MUST_USE
#endif

/* DLPack. Its own header's names, as of 1.3, where no dlpack.h was included before; else what that one lacks. */
#if !defined(DLPACK_DLPACK_H_)
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3
#ifdef __cplusplus
#define DLPACK_EXTERN_C extern "C"
#else
#define DLPACK_EXTERN_C
#endif
#ifdef _WIN32
#ifdef DLPACK_EXPORTS
#define DLPACK_DLL __declspec(dllexport)
#else
#define DLPACK_DLL __declspec(dllimport)
#endif
#else
#define DLPACK_DLL
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
  kDLTrn = 18
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U,
  kDLFloat8_e3m4 = 7U,
  kDLFloat8_e4m3 = 8U,
  kDLFloat8_e4m3b11fnuz = 9U,
  kDLFloat8_e4m3fn = 10U,
  kDLFloat8_e4m3fnuz = 11U,
  kDLFloat8_e5m2 = 12U,
  kDLFloat8_e5m2fnuz = 13U,
  kDLFloat8_e8m0fnu = 14U,
  kDLFloat6_e2m3fn = 15U,
  kDLFloat6_e3m2fn = 16U,
  kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

/* strides count elements, byte_offset counts bytes. */
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef int (*DLPackManagedTensorAllocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                                            void (*SetError)(void *error_ctx, const char *kind,
                                                             const char *message));
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(void *py_object, DLManagedTensorVersioned **out);
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void *py_object, DLTensor *out);
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type, int32_t device_id, void **out_current_stream);
typedef int (*DLPackManagedTensorToPyObjectNoSync)(DLManagedTensorVersioned *tensor, void **out_py_object);

typedef struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  DLPackManagedTensorAllocator managed_tensor_allocator;
  DLPackManagedTensorFromPyObjectNoSync managed_tensor_from_py_object_no_sync;
  DLPackManagedTensorToPyObjectNoSync managed_tensor_to_py_object_no_sync;
  DLPackDLTensorFromPyObjectNoSync dltensor_from_py_object_no_sync;
  DLPackCurrentWorkStream current_work_stream;
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif

#elif !defined(DLPACK_MAJOR_VERSION)
/* Before 1.0 there is neither a version nor the versioned struct. */
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#endif

#ifndef DLPACK_FLAG_BITMASK_READ_ONLY
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#endif
#ifndef DLPACK_FLAG_BITMASK_IS_COPIED
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#endif
#ifndef DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)
#endif

/* Before 1.2 there are no exchange tables; they are passed by pointer only. */
struct DLPackExchangeAPIHeader;
struct DLPackExchangeAPI;

/* Whoever declared the structs, and whatever -fshort-enums or -fpack-struct did to them: this is the ABI. */
#if !defined(DLRO_FFI)
#if defined(__cplusplus)
#define DLRO_LAYOUT(name, condition) static_assert(condition, #name ": DLPack's ABI has another layout")
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define DLRO_LAYOUT(name, condition) _Static_assert(condition, #name ": DLPack's ABI has another layout")
#else
#define DLRO_LAYOUT(name, condition) extern char dlro_layout_of_##name[(condition) ? 1 : -1]
#endif
/* What packing changes in structs without gaps is where they may lie, so that is looked at too. */
struct dlro_layout_alignment {
  char before;
  struct DLManagedTensorVersioned tensor;
};
DLRO_LAYOUT(alignment, offsetof(struct dlro_layout_alignment, tensor) >= sizeof(void *));
DLRO_LAYOUT(DLPackVersion, sizeof(DLPackVersion) == 8);
DLRO_LAYOUT(DLDeviceType, sizeof(DLDeviceType) == 4);
DLRO_LAYOUT(DLDevice, sizeof(DLDevice) == 8 && offsetof(DLDevice, device_id) == 4);
DLRO_LAYOUT(DLDataType, sizeof(DLDataType) == 4 && offsetof(DLDataType, lanes) == 2);
DLRO_LAYOUT(DLTensor, offsetof(DLTensor, device) == sizeof(void *) &&
                          offsetof(DLTensor, ndim) == sizeof(void *) + 8 &&
                          offsetof(DLTensor, dtype) == sizeof(void *) + 12 &&
                          offsetof(DLTensor, shape) == sizeof(void *) + 16 &&
                          offsetof(DLTensor, strides) == 2 * sizeof(void *) + 16 &&
                          offsetof(DLTensor, byte_offset) >= 3 * sizeof(void *) + 16 &&
                          offsetof(DLTensor, byte_offset) + 8 == sizeof(DLTensor));
DLRO_LAYOUT(DLManagedTensor, offsetof(DLManagedTensor, manager_ctx) == sizeof(DLTensor) &&
                                 offsetof(DLManagedTensor, deleter) == sizeof(DLTensor) + sizeof(void *));
DLRO_LAYOUT(DLManagedTensorVersioned,
            offsetof(struct DLManagedTensorVersioned, manager_ctx) == 8 &&
                offsetof(struct DLManagedTensorVersioned, deleter) == 8 + sizeof(void *) &&
                offsetof(struct DLManagedTensorVersioned, flags) == 8 + 2 * sizeof(void *) &&
                offsetof(struct DLManagedTensorVersioned, dl_tensor) == 16 + 2 * sizeof(void *));
#undef DLRO_LAYOUT
#endif

/* The defaults of every field; a NULL pointer to options means the same. */
#define DLRO_IMPORT_OPTIONS_INIT \
  {sizeof(dlro_import_options), DLRO_ACCESS_READ, DLRO_COPY_IF_NEEDED, DLRO_LAYOUT_ANY, 0, 0, 0, 0, 0}
#define DLRO_EXPORT_OPTIONS_INIT \
  {sizeof(dlro_export_options), DLRO_COPY_IF_NEEDED, DLRO_LEGACY_REFUSE_READ_ONLY, 0, 0, 0, 0}


/**
 * The values of `dlro_status`. Numbers are explicit and never reused.
 *
 * 1 to 99: "this array cannot be exchanged in this way", the family for which the array API prescribes
 * `BufferError` (`dlro_status_is_exchange_error`). 100 to 199: the caller or the descriptor is wrong.
 * 200 to 299: the machine, a file or this library failed.
 */
typedef enum dlro_status_values {
  /**
   * Success.
   */
  DLRO_OK = 0,
  /**
   * Somebody who must not write asked for the right to write.
   */
  DLRO_ERR_READ_ONLY = 1,
  /**
   * Memory that nobody changes was asked for, but somebody may still change this memory.
   */
  DLRO_ERR_NOT_IMMUTABLE = 2,
  /**
   * Writable and immutable tensors over one memory exclude each other, and one of the other kind is alive.
   */
  DLRO_ERR_BUSY = 3,
  /**
   * Only a copy meets the requirements, and the copy policy is `DLRO_COPY_NEVER`.
   */
  DLRO_ERR_COPY_NEEDED = 4,
  /**
   * The tensor's major DLPack version is not the one this library knows.
   */
  DLRO_ERR_VERSION = 5,
  /**
   * DLPack has no such data type, or it does not match, or it has the wrong byte order.
   */
  DLRO_ERR_DTYPE = 6,
  /**
   * The memory lives where the host cannot read it, or the device is not the wanted one.
   */
  DLRO_ERR_DEVICE = 7,
  /**
   * Strides that cannot be exchanged in this way: elements overlap, or they differ where they must not.
   */
  DLRO_ERR_LAYOUT = 8,
  /**
   * A pointer is NULL that must not be.
   */
  DLRO_ERR_NULL = 100,
  /**
   * An argument has a value that does not exist.
   */
  DLRO_ERR_ARGUMENT = 101,
  /**
   * A number of dimensions, a dimension, a size or an address is out of range, or a window leaves its memory.
   */
  DLRO_ERR_BOUNDS = 102,
  /**
   * An allocation failed. Nothing was consumed, nothing leaked.
   */
  DLRO_ERR_NO_MEMORY = 200,
  /**
   * The operating system refused; the sentence has its reason.
   */
  DLRO_ERR_IO = 201,
  /**
   * The file is not what its name or its header claims.
   */
  DLRO_ERR_FORMAT = 202,
  /**
   * This system or this build cannot do that.
   */
  DLRO_ERR_UNSUPPORTED = 203,
  /**
   * A defect in this library. Nothing crossed the boundary but this number; please report it.
   */
  DLRO_ERR_INTERNAL = 204,
} dlro_status_values;

/**
 * The values of `dlro_mutability`, from weak to strong.
 */
typedef enum dlro_mutability_values {
  /**
   * Whoever holds a tensor over the memory may write.
   */
  DLRO_MUTABILITY_WRITABLE = 0,
  /**
   * Who holds this tensor must not write; somebody else may. A NumPy view with `writeable=False`.
   */
  DLRO_MUTABILITY_READ_ONLY = 1,
  /**
   * Nobody writes while this tensor lives. A JAX array, sealed memory, a copy that nobody else has.
   */
  DLRO_MUTABILITY_IMMUTABLE = 2,
} dlro_mutability_values;

/**
 * The values of `dlro_access`.
 */
typedef enum dlro_access_values {
  /**
   * Only read; somebody else may write meanwhile. The default.
   */
  DLRO_ACCESS_READ = 0,
  /**
   * Read and write.
   */
  DLRO_ACCESS_WRITE = 1,
  /**
   * Only read, and rely on nobody writing while the tensor lives.
   */
  DLRO_ACCESS_IMMUTABLE = 2,
} dlro_access_values;

/**
 * The values of `dlro_copy`.
 */
typedef enum dlro_copy_values {
  /**
   * Only where nothing else meets the requirements (`copy=None`). The default.
   */
  DLRO_COPY_IF_NEEDED = 0,
  /**
   * Never (`copy=False`): what only a copy would meet is an error.
   */
  DLRO_COPY_NEVER = 1,
  /**
   * Always (`copy=True`).
   */
  DLRO_COPY_ALWAYS = 2,
} dlro_copy_values;

/**
 * The values of `dlro_layout`.
 */
typedef enum dlro_layout_values {
  /**
   * Any strides: negative, zero, with gaps. The default.
   */
  DLRO_LAYOUT_ANY = 0,
  /**
   * C order without gaps.
   */
  DLRO_LAYOUT_ROW_MAJOR = 1,
  /**
   * Fortran order without gaps.
   */
  DLRO_LAYOUT_COLUMN_MAJOR = 2,
  /**
   * Any strides >= 0.
   */
  DLRO_LAYOUT_NON_NEGATIVE = 3,
} dlro_layout_values;

/**
 * Bits of `dlro_import_options::flags`.
 */
typedef enum dlro_import_flags {
  /**
   * The result must be a tensor of this library, which can be shared and frozen, even where the foreign
   * tensor would do as it is.
   */
  DLRO_IMPORT_ADOPT = 1,
  /**
   * The host must be able to read the memory, whatever device that is.
   */
  DLRO_IMPORT_HOST = 2,
} dlro_import_flags;

/**
 * The values of `dlro_legacy_policy`.
 */
typedef enum dlro_legacy_policy_values {
  /**
   * Nothing is known: it may write, so it gets nothing read-only. The default.
   */
  DLRO_LEGACY_REFUSE_READ_ONLY = 0,
  /**
   * The caller vouches that it never writes, as JAX and TensorFlow do not.
   */
  DLRO_LEGACY_CONSUMER_NEVER_WRITES = 1,
} dlro_legacy_policy_values;

/**
 * Bits of `dlro_export_options::flags`.
 */
typedef enum dlro_export_flags {
  /**
   * Add byte_offset to `data` and send 0, for consumers that ignore byte_offset. Refused where `data` is a
   * handle.
   */
  DLRO_EXPORT_FOLD_BYTE_OFFSET = 1,
} dlro_export_flags;

/**
 * The values of `dlro_map_mode`.
 */
typedef enum dlro_map_mode_values {
  /**
   * The tensor is read-only, and the memory too: a write through it is SIGSEGV.
   */
  DLRO_MAP_READ_ONLY = 0,
  /**
   * The tensor is writable; what is written goes to pages of its own and never to the file.
   */
  DLRO_MAP_COPY_ON_WRITE = 1,
} dlro_map_mode_values;

/**
 * Bits for `dlro_buffer_wrap`.
 */
typedef enum dlro_wrap_flags {
  /**
   * Nobody writes the memory but through tensors of this buffer, so that it can become immutable.
   */
  DLRO_WRAP_SOLE = 1,
} dlro_wrap_flags;

/**
 * Bits for `dlro_buffer_freeze`.
 */
typedef enum dlro_freeze_flags {
  /**
   * Also write-protect the pages: a write through any pointer is SIGSEGV from now on.
   */
  DLRO_FREEZE_ENFORCE = 1,
} dlro_freeze_flags;

/**
 * An open safetensors file. Made by `dlro_safetensors_map`, ended by `dlro_archive_release`.
 */
typedef struct dlro_archive dlro_archive;

/**
 * Memory that tensors are windows on. Used through pointers only.
 */
typedef struct dlro_buffer dlro_buffer;

/**
 * A tensor that the guard watches. Used through pointers only.
 */
typedef struct dlro_watch dlro_watch;

/**
 * What every function that can fail returns; one of the `DLRO_OK`, `DLRO_ERR_...` numbers.
 */
typedef int32_t dlro_status;

/**
 * What may happen to memory; one of the `DLRO_MUTABILITY_...` numbers.
 */
typedef uint32_t dlro_mutability;

/**
 * What a consumer will do with the elements; one of the `DLRO_ACCESS_...` numbers.
 */
typedef uint32_t dlro_access;

/**
 * Whether a copy may be made; one of the `DLRO_COPY_...` numbers. The array API's `copy=`.
 */
typedef uint32_t dlro_copy;

/**
 * Which strides a consumer can work with; one of the `DLRO_LAYOUT_...` numbers.
 */
typedef uint32_t dlro_layout;

/**
 * A consumer's requirements. Start from `DLRO_IMPORT_OPTIONS_INIT`; a NULL pointer means the same.
 */
typedef struct dlro_import_options {
  /**
   * `sizeof(dlro_import_options)`, set by the _INIT macro. Later versions grow at the end.
   */
  size_t struct_size;
  /**
   * A `DLRO_ACCESS_...` number.
   */
  dlro_access access;
  /**
   * A `DLRO_COPY_...` number.
   */
  dlro_copy copy;
  /**
   * A `DLRO_LAYOUT_...` number.
   */
  dlro_layout layout;
  /**
   * `DLRO_IMPORT_...` bits.
   */
  uint32_t flags;
  /**
   * What the address of the first element must be a multiple of, in bytes: a power of two up to 2^30; 0 for
   * none. It is `data + byte_offset` that counts.
   */
  uint32_t alignment;
  /**
   * The device type that the tensor must be on, a number of DLPack's `DLDeviceType`; 0 for any.
   */
  int32_t device_type;
  /**
   * The device id that goes with `device_type`. Not read if that is 0.
   */
  int32_t device_id;
  /**
   * How many threads may work on a copy at most, the caller's included, up to 1024; 0 and 1 mean the caller's
   * alone. Small copies stay with the caller; none is left running afterwards.
   */
  uint32_t threads;
} dlro_import_options;

/**
 * What is known of a consumer that reads the legacy struct only; one of the `DLRO_LEGACY_...` numbers.
 */
typedef uint32_t dlro_legacy_policy;

/**
 * What a consumer asked `__dlpack__` for. Start from `DLRO_EXPORT_OPTIONS_INIT`; a NULL pointer means the same.
 */
typedef struct dlro_export_options {
  /**
   * `sizeof(dlro_export_options)`, set by the _INIT macro. Later versions grow at the end.
   */
  size_t struct_size;
  /**
   * A `DLRO_COPY_...` number: `copy=`.
   */
  dlro_copy copy;
  /**
   * A `DLRO_LEGACY_...` number.
   */
  dlro_legacy_policy policy;
  /**
   * `DLRO_EXPORT_...` bits.
   */
  uint32_t flags;
  /**
   * The device type of `dl_device=`, a number of DLPack's `DLDeviceType`; 0 if it was not given.
   */
  int32_t device_type;
  /**
   * The device id that goes with `device_type`. Not read if that is 0.
   */
  int32_t device_id;
  /**
   * 0.
   */
  uint32_t reserved;
} dlro_export_options;

/**
 * What a consumer gets: one of the two pointers, and the names for its PyCapsule. Exactly one pointer is not
 * NULL.
 */
typedef struct dlro_exported {
  /**
   * For a consumer of DLPack 1.0 or later.
   */
  struct DLManagedTensorVersioned *versioned;
  /**
   * For a consumer of an earlier DLPack.
   */
  DLManagedTensor *legacy;
  /**
   * "dltensor_versioned" or "dltensor". The library's own, so its address may serve as the capsule's name.
   */
  const char *capsule_name;
  /**
   * "used_dltensor_versioned" or "used_dltensor": what the consumer renames the capsule to.
   */
  const char *used_capsule_name;
} dlro_exported;

/**
 * How a file is mapped; one of the `DLRO_MAP_...` numbers.
 */
typedef uint32_t dlro_map_mode;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs: major * 1000000 + minor * 1000 + patch.
 *
 * Compare it with `DLRO_VERSION`, the header's own, which is what the program was compiled with.
 * Never fails. Any thread.
 */
uint32_t dlro_version(void);

/**
 * The version of the library that runs, as text: "0.1.0".
 *
 * The text is the library's own and lives as long as the process. Never fails. Any thread.
 */
const char *dlro_version_string(void);

/**
 * The DLPack version that the library implements: 1.3.
 *
 * It reads tensors of every 1.x version whose numbers it knows. What it exports claims the lowest version
 * that defines what the tensor uses, so that older consumers take it: 1.0; 1.1 for float8, float6, float4
 * and padded sub-byte types; 1.2 for the device type kDLTrn. Never fails. Any thread.
 */
DLPackVersion dlro_dlpack_version(void);

/**
 * The name of a status number, "DLRO_ERR_READ_ONLY" for example; "unknown status" for a number that is none.
 *
 * The text is the library's own and lives as long as the process. Never fails. Any thread.
 */
const char *dlro_status_name(int32_t status);

/**
 * Whether a status says "this array cannot be exchanged in this way" (numbers 1 to 99), as opposed to a
 * wrong call or a machine that failed.
 *
 * The array API prescribes `BufferError` for these. Never fails. Any thread.
 */
bool dlro_status_is_exchange_error(int32_t status);

/**
 * What the last failure on this thread was, in one sentence with the offending values; "" before the first.
 *
 * The text is the library's and stays until the next failure on this thread: success, queries and deleters
 * leave it alone. It is UTF-8, except where it quotes a path that is not. Never fails, never allocates.
 */
const char *dlro_last_error_message(void);

/**
 * Copies the last failure's sentence into a buffer of `capacity` bytes, for languages whose code may move to
 * another thread between two calls.
 *
 * Works as snprintf does: at most `capacity` bytes are written, the last of them NUL; the answer is the
 * length of the whole sentence in bytes, without the NUL. `dst` may be NULL if `capacity` is 0. Never fails.
 *
 * # Safety
 * `dst` is writable for `capacity` bytes.
 */
size_t dlro_last_error_copy(char *dst, size_t capacity);

/**
 * Makes a managed tensor over memory that the caller owns: a producer's whole `__dlpack__` in one call.
 *
 * `layout` describes the elements. Its numbers are copied, so it and its arrays may go away afterwards.
 * `layout->strides` (in elements) may be NULL for row-major; the result always has strides. `byte_offset` is
 * in bytes and is passed on. A tensor without elements gets NULL data, as DLPack wants it.
 * `flags`: 0, or `DLPACK_FLAG_BITMASK_IS_COPIED` if the elements are a copy made for this one consumer, or
 * `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`, or both. READ_ONLY is not given here; `mutability` decides it.
 * `mutability`: what the caller promises of the memory. READ_ONLY and IMMUTABLE set DLPack's READ_ONLY flag.
 * `release(owner)` is called once when the last tensor over the memory is released, on whatever thread that
 * happens. `release` may be NULL.
 *
 * Ownership: on success `*out` belongs to the caller and `owner` to the tensor. On failure nothing was taken
 * over, `release` is not called, and `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL` (layout, out, shape with ndim > 0, or data with elements is NULL),
 * `DLRO_ERR_ARGUMENT` (unknown mutability or flag), `DLRO_ERR_BOUNDS` (ndim, a dimension, the size or the
 * extent is out of range), `DLRO_ERR_DTYPE` (DLPack has no such type), `DLRO_ERR_DEVICE` (a host device with
 * an id other than 0), `DLRO_ERR_LAYOUT` (writable, and elements share memory), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any. Rule: DLPack 1.3, `DLManagedTensorVersioned`; strides are never NULL since 1.2.
 *
 * # Safety
 * `layout` and its arrays are readable; the memory is there until `release` is called.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_export(const DLTensor *layout,
                               uint64_t flags,
                               dlro_mutability mutability,
                               void *owner,
                               void (*release)(void *owner),
                               struct DLManagedTensorVersioned **out);

/**
 * Makes a managed tensor over new host memory: zeroed, row-major, writable, its data aligned to 256 bytes.
 *
 * Of `prototype` only device, ndim, dtype and shape are read. The device must be kDLCPU, id 0.
 *
 * Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_DTYPE`, `DLRO_ERR_DEVICE`, `DLRO_ERR_NO_MEMORY`; each
 * as in `dlro_tensor_export`.
 *
 * Threads: any. Rule: DLPack 1.3, `DLTensor::data` ("aligned to 256 bytes").
 *
 * # Safety
 * `prototype` and its shape are readable.
 */
DLRO_MUST_USE dlro_status dlro_tensor_new(const DLTensor *prototype, struct DLManagedTensorVersioned **out);

/**
 * `dlro_tensor_new` with the signature of DLPack's `DLPackManagedTensorAllocator`, for the exchange table
 * of a framework that keeps its tensors on the host.
 *
 * Returns 0, or -1 after `SetError(error_ctx, kind, message)` was called exactly once; `kind` is the name of
 * a Python exception ("MemoryError", "BufferError", "ValueError" or "RuntimeError"), `message` the sentence.
 * Both are valid during that call only. `SetError` may be NULL.
 *
 * Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL.
 *
 * Threads: any. Rule: DLPack 1.3, `DLPackManagedTensorAllocator`.
 *
 * # Safety
 * As for `dlro_tensor_new`; `SetError` does not unwind.
 */
int dlro_managed_tensor_allocator(DLTensor *prototype,
                                  struct DLManagedTensorVersioned **out,
                                  void *error_ctx,
                                  void (*SetError)(void *error_ctx, const char *kind, const char *message));

/**
 * Takes a producer's tensor, checks it, and meets the consumer's requirements with the least that does it.
 *
 * Where nothing has to be done `*out` is `foreign` itself, untouched. Otherwise it is a tensor of this
 * library: one that owns the foreign one (strides were missing, or `DLRO_IMPORT_ADOPT`), one over a private
 * mapping (below), or one over a copy, after which the foreign tensor has been released.
 *
 * What is required is looked at in this order, and the first that cannot be met is the error, with both
 * sides' values in the sentence:
 *
 * | requirement | unmet | repaired by | refused with |
 * |---|---|---|---|
 * | version | another major version | nothing | `DLRO_ERR_VERSION` |
 * | device, `DLRO_IMPORT_HOST` | another device | nothing | `DLRO_ERR_DEVICE` |
 * | access WRITE | the tensor is read-only | private mapping, copy | `DLRO_ERR_READ_ONLY` |
 * | access WRITE | elements share memory | copy | `DLRO_ERR_COPY_NEEDED` |
 * | layout, alignment | strides or address differ | copy | `DLRO_ERR_COPY_NEEDED` |
 * | access IMMUTABLE | somebody may write | freezing it, copy | `DLRO_ERR_NOT_IMMUTABLE`, `DLRO_ERR_BUSY` |
 *
 * A private mapping shows the same bytes copy-on-write: it costs microseconds whatever the size, a page is copied
 * when it is first written, and the file never changes. There is one for a read-only CPU tensor of 64 KiB or
 * more that this library mapped from a file, and on 64-bit Linux for one of 4 MiB or more from anybody (a NumPy
 * memmap, pyarrow's memory map, shared memory of another process, a memfd) if the process's map table proves
 * that memory and file agree: a shared mapping, or a private one of which no page was written; in several
 * pieces or one, but one run of one file on ext2 to ext4, XFS or tmpfs; the file long enough, and either still
 * to be opened by its name or open in this process. Everything else is copied: other filesystems, huge pages
 * of hugetlbfs, memory of no file. Pages that the consumer has not written show what others write into the file
 * later, and are gone (SIGBUS) if somebody makes the file shorter, as they were for the foreign tensor; the
 * foreign tensor is therefore kept, and released with `*out`. (One that this library mapped is released at
 * once.) Who needs memory that nobody else changes asks for `DLRO_COPY_ALWAYS`. A file descriptor is not kept.
 *
 * A copy is dense, writable unless access is IMMUTABLE, aligned to 256 bytes or more, and has IS_COPIED set.
 * Flags that this library does not know stay as they are. Access READ says nothing of others: the tensor
 * may change, and `*out` may be writable.
 *
 * Ownership: on success `foreign` is inside `*out` or released, and `*out` belongs to the caller. On failure
 * `foreign` still belongs to the caller, who may release it or try again, and `*out` is NULL. A PyCapsule is
 * therefore renamed after success only.
 *
 * Status: those of the table; `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_DTYPE` (the descriptor breaks a
 * rule); `DLRO_ERR_DEVICE` (a copy is needed and the host cannot read the memory); `DLRO_ERR_ARGUMENT` (the
 * options); `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody else may use `foreign` meanwhile. Rule: DLPack 1.3, Python specification of
 * `from_dlpack`; array API 2025.12, `from_dlpack(copy=, device=)`.
 *
 * # Safety
 * The caller owns `foreign`, which is what its version says it is; its memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_import(struct DLManagedTensorVersioned *foreign,
                               const struct dlro_import_options *options,
                               struct DLManagedTensorVersioned **out);

/**
 * Checks everything in a tensor that can be checked without knowing who made it, as strictly as DLPack
 * writes it.
 *
 * Stricter than `dlro_tensor_import` in two things that real producers get wrong and consumers can work
 * with: NULL strides from a tensor that claims version 1.2 or later, and a host device with an id.
 *
 * Ownership: none changes hands.
 *
 * Status: `DLRO_ERR_NULL` (tensor, or its shape with ndim > 0, or its data with elements),
 * `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_LAYOUT` (NULL strides),
 * `DLRO_ERR_DEVICE` (id).
 *
 * Threads: any, also while others call const functions on the tensor. Memory is not touched.
 * Rule: DLPack 1.3, `DLTensor`.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor.
 */
DLRO_MUST_USE dlro_status dlro_tensor_validate(const struct DLManagedTensorVersioned *tensor);

/**
 * Gives the address of the first element, `data + byte_offset`, for reading.
 *
 * With negative strides that is not the lowest address. A tensor without elements gives NULL.
 *
 * Ownership: the address is good while the tensor lives.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
 * `dlro_tensor_validate`; `DLRO_ERR_DEVICE` where `data` is a handle and no address (OpenCL, Vulkan, Metal,
 * WebGPU). On other devices the address is the device's: the host may follow it only where
 * `dlro_device_is_host` says so.
 *
 * Threads: any, also while others call const functions on the tensor. Rule: DLPack 1.3,
 * `DLTensor::byte_offset`.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_tensor_data(const struct DLManagedTensorVersioned *tensor, const void **out);

/**
 * Gives the address of the first element, `data + byte_offset`, for writing.
 *
 * There is no other way in this library to a pointer that one may write through.
 *
 * Ownership: the address is good while the tensor lives.
 *
 * Status: as `dlro_tensor_data`; `DLRO_ERR_READ_ONLY` (the tensor is read-only); `DLRO_ERR_LAYOUT` (elements
 * share memory, so that writing one changes another, whatever the flag says).
 *
 * Threads: not const, so not while others use the tensor. Rule: DLPack 1.3,
 * `DLPACK_FLAG_BITMASK_READ_ONLY`.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_tensor_data_mut(struct DLManagedTensorVersioned *tensor, void **out);

/**
 * Says what may happen to the tensor's memory; of a tensor that another library made, only what its READ_ONLY
 * flag lets one assume.
 *
 * Reads nothing but version-independent fields, so it works for every major version. NULL is
 * `DLRO_MUTABILITY_READ_ONLY`. Never fails.
 *
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor.
 */
dlro_mutability dlro_tensor_mutability(const struct DLManagedTensorVersioned *tensor);

/**
 * Counts the elements.
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_element_count(const struct DLManagedTensorVersioned *tensor,
                                      uint64_t *out);

/**
 * Gives the size of the elements in bytes: what a dense copy of them takes.
 *
 * Packed sub-byte elements are rounded up to bytes once, over the whole tensor (the sizing snippet in
 * `dlpack.h` rounds for each element, which is right only for padded ones).
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_tensor_nbytes(const struct DLManagedTensorVersioned *tensor, uint64_t *out);

/**
 * Gives the range of memory that the elements lie in: `*nbytes` bytes, the lowest of them `*lowest` bytes
 * from the first element.
 *
 * `*lowest` is 0, or below 0 where strides are negative. The size differs from `dlro_tensor_nbytes` where
 * the tensor has gaps (larger) or repeats elements (smaller).
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `lowest` and `nbytes` are writable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_span(const struct DLManagedTensorVersioned *tensor,
                             int64_t *lowest,
                             uint64_t *nbytes);

/**
 * Says whether the elements lie in C order without gaps.
 *
 * Dimensions of size 1 do not matter; a tensor without elements is both row-major and column-major.
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_tensor_is_row_major(const struct DLManagedTensorVersioned *tensor, bool *out);

/**
 * Says whether the elements lie in Fortran order without gaps.
 *
 * Dimensions of size 1 do not matter; a tensor without elements is both row-major and column-major.
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_is_column_major(const struct DLManagedTensorVersioned *tensor,
                                        bool *out);

/**
 * Says whether two different indices lead to the same memory: a stride of 0, or windows that cross.
 *
 * Such a tensor is fine to read and never writable. The answer is exact except for rare strides for which
 * finding it would take too long; there it is true.
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `out` is writable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_is_overlapping(const struct DLManagedTensorVersioned *tensor,
                                       bool *out);

/**
 * Describes a tensor in one line: dtype, shape, strides in elements, device, mutability, version, address,
 * size in bytes.
 *
 * Works as snprintf does: at most `capacity` bytes go to `dst`, the last of them NUL; `*length` is the length
 * of the whole line in bytes, without the NUL. `dst` may be NULL if `capacity` is 0. The text is for people
 * and may change between versions.
 *
 * Ownership: none changes hands. Status: as `dlro_tensor_data`, but for `DLRO_ERR_DEVICE`.
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `dst` is writable for `capacity` bytes, `length` is writable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_describe(const struct DLManagedTensorVersioned *tensor,
                                 char *dst,
                                 size_t capacity,
                                 size_t *length);

/**
 * Gives the size of one element in bits, all its lanes together, and so checks that DLPack has the type.
 *
 * Bits and not bytes: float4 has 4, float6 has 6. A padded element is rounded up to whole bytes.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_DTYPE`. Threads: any. Rule: DLPack 1.3, `DLDataType`.
 *
 * # Safety
 * `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_dtype_bits(DLDataType dtype, uint32_t *out);

/**
 * Writes the name of a data type, "float32" or "float8_e4m3fn" for example; lanes follow behind an x.
 *
 * Works as snprintf does; see `dlro_tensor_describe`. The names are NumPy's and ml_dtypes'.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_DTYPE`. Threads: any.
 *
 * # Safety
 * `dst` is writable for `capacity` bytes, `length` is writable.
 */
DLRO_MUST_USE dlro_status dlro_dtype_describe(DLDataType dtype, char *dst, size_t capacity, size_t *length);

/**
 * Says whether the host can read memory of this device type by following `data`: kDLCPU, kDLCUDAHost and
 * kDLROCMHost.
 *
 * kDLCUDAManaged is not among them: the host may read it only while no kernel uses it, which only CUDA
 * knows. Device types are an open set; unknown numbers are not host-readable. Never fails. Any thread.
 */
bool dlro_device_is_host(int32_t device_type);

/**
 * Ends a tensor of whatever maker and version: calls its deleter, if it has one.
 *
 * NULL is accepted and nothing happens. A NULL deleter is legal: nothing is called and nothing freed.
 * Never fails, and leaves the last error message alone.
 *
 * Ownership: the caller gives the tensor up; neither it nor a pointer into it may be used afterwards.
 *
 * Threads: any, at any time, also after `main`; nobody else may use the tensor meanwhile. Other tensors over
 * the same memory stay. Rule: DLPack 1.3, `DLManagedTensorVersioned::deleter`.
 *
 * # Safety
 * The caller owns `tensor`.
 */
void dlro_tensor_release(struct DLManagedTensorVersioned *tensor);

/**
 * Makes one more tensor over the same memory, or over a window of it.
 *
 * Works on tensors that this library made; `dlro_tensor_import` with `DLRO_IMPORT_ADOPT` turns a foreign one
 * into such a tensor.
 *
 * `mutability`: what the new tensor's holder may do. Rights never grow: a writable one is made from a
 * writable one only. While a writable tensor over the memory is alive there can be no immutable one, and the
 * other way round. Memory that its producer lent as writable or read-only is never immutable, since the
 * producer may write it.
 * `window`: NULL for the same shape and strides. Otherwise its dtype, ndim, shape, strides (in elements; NULL
 * for row-major) and byte_offset (in bytes) describe the new tensor; its `data` is NULL, which stands for the
 * tensor's own `data`, or an address; its device is not read. So one may copy `tensor->dl_tensor`, change
 * what shall differ, and pass that. The window must lie within the memory that the tensor came with.
 * IS_COPIED is not passed on, and goes from the tensor too: what is shared has no sole owner.
 *
 * Ownership: on success `*out` belongs to the caller, and both tensors keep the memory. On failure `*out` is
 * NULL. The tensor stays the caller's.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mutability, a foreign tensor), `DLRO_ERR_VERSION`,
 * `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` (the window leaves the memory), `DLRO_ERR_READ_ONLY`,
 * `DLRO_ERR_NOT_IMMUTABLE`, `DLRO_ERR_BUSY` (the sentence has the counts), `DLRO_ERR_LAYOUT` (a writable
 * window whose elements share memory), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any, also while others call const functions on the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `window` is NULL or readable with its arrays.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_share(const struct DLManagedTensorVersioned *tensor,
                              dlro_mutability mutability,
                              const DLTensor *window,
                              struct DLManagedTensorVersioned **out);

/**
 * Turns the sole writable tensor over memory into an immutable one: from now on nobody writes it while the
 * tensor lives.
 *
 * On an immutable tensor it does nothing. The READ_ONLY flag is set, so pointers that were taken for writing
 * must not be used any more.
 *
 * Ownership: none changes hands. On failure nothing changed.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (a foreign tensor), `DLRO_ERR_BUSY` (other writable tensors
 * over the memory are alive; the sentence has their number), `DLRO_ERR_NOT_IMMUTABLE` (a producer lent the
 * memory and may still write it; export it as IMMUTABLE or copy it).
 *
 * Threads: not const, so not while others use the tensor.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor.
 */
DLRO_MUST_USE dlro_status dlro_tensor_freeze(struct DLManagedTensorVersioned *tensor);

/**
 * Takes a legacy tensor (`DLManagedTensor`, DLPack before 1.0), checks it, and meets the consumer's
 * requirements as `dlro_tensor_import` does.
 *
 * The legacy struct has no flags, so the caller says what it knows of the memory: `vouched` is
 * `DLRO_MUTABILITY_READ_ONLY` unless the producer's documentation promises more. A legacy tensor that
 * `dlro_legacy_export` made comes back with the rights that it went in with, whatever the caller vouches.
 * `*out` is always a tensor of this library.
 *
 * Ownership: on success `foreign` is inside `*out` or released, and `*out` belongs to the caller. On failure
 * `foreign` still belongs to the caller, and `*out` is NULL.
 *
 * Status: those of `dlro_tensor_import`, but for `DLRO_ERR_VERSION`; `DLRO_ERR_ARGUMENT` also for an unknown
 * `vouched`.
 *
 * Threads: any; nobody else may use `foreign` meanwhile. Rule: DLPack 1.3, `DLManagedTensor`; array API
 * 2025.12, `__dlpack__` (a consumer falls back to the legacy struct).
 *
 * # Safety
 * The caller owns `foreign`; its memory is there and is what `vouched` says.
 */
DLRO_MUST_USE
dlro_status dlro_legacy_import(DLManagedTensor *foreign,
                               dlro_mutability vouched,
                               const struct dlro_import_options *options,
                               struct DLManagedTensorVersioned **out);

/**
 * Puts a tensor into the legacy struct, for a consumer that knows no other.
 *
 * `policy` says what is known of that consumer. By default a read-only tensor is refused, because the struct
 * cannot say that it is.
 *
 * Ownership: on success `tensor` is inside `*out`, which belongs to the caller. On failure `tensor` still
 * belongs to the caller, and `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown policy), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`,
 * `DLRO_ERR_READ_ONLY`, `DLRO_ERR_DTYPE` (also a padded sub-byte type, which the struct cannot say),
 * `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody else may use `tensor` meanwhile. Rule: array API 2025.12, `__dlpack__` with
 * `max_version=None`.
 *
 * # Safety
 * The caller owns `tensor`.
 */
DLRO_MUST_USE
dlro_status dlro_legacy_export(struct DLManagedTensorVersioned *tensor,
                               dlro_legacy_policy policy,
                               DLManagedTensor **out);

/**
 * Answers a consumer's `__dlpack__(max_version=..., dl_device=..., copy=...)`: decides which struct it can
 * take, and refuses what that struct cannot say.
 *
 * `max_version` is what the consumer gave, or NULL if it gave nothing: then, and for a major version below 1,
 * it gets the legacy struct, otherwise the versioned one, whatever minor version it knows (DLPack: a consumer
 * must check). A read-only tensor goes into the legacy struct only under
 * `DLRO_LEGACY_CONSUMER_NEVER_WRITES`. With `DLRO_COPY_ALWAYS` it is a copy that is handed out, writable and
 * marked IS_COPIED, and `tensor` is released.
 *
 * Ownership: on success `tensor` is inside the answer or released, and the answer's pointer belongs to the
 * caller. On failure `tensor` still belongs to the caller, and `*out` is zeroed. To keep the tensor, share
 * it first and hand out the share.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (the options), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`,
 * `DLRO_ERR_DTYPE`, `DLRO_ERR_READ_ONLY` (legacy consumer), `DLRO_ERR_DEVICE` (`dl_device` is another device;
 * a copy of memory that the host cannot read; folding a handle), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody else may use `tensor` meanwhile. Rule: array API 2025.12, `__dlpack__`; DLPack 1.3,
 * Python specification.
 *
 * # Safety
 * The caller owns `tensor`, and its memory is there; `max_version` is NULL or readable.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_export_for(struct DLManagedTensorVersioned *tensor,
                                   const DLPackVersion *max_version,
                                   const struct dlro_export_options *options,
                                   struct dlro_exported *out);

/**
 * Finds the table of this library's major version in a producer's `__dlpack_c_exchange_api__`, and checks
 * that its functions are there.
 *
 * `newest` is the pointer in the capsule "dlpack_exchange_api": a producer of a later DLPack chains tables of
 * earlier versions to it. At most 64 tables are looked at.
 *
 * Ownership: tables belong to their producer and live as long as the process; `*out` is one of them.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION` (no table of major version 1), `DLRO_ERR_ARGUMENT` (a function
 * is NULL that must not be; only `dltensor_from_py_object_no_sync` may).
 *
 * Threads: any. Rule: DLPack 1.3, `DLPackExchangeAPIHeader::prev_api`, `DLPackExchangeAPI`.
 *
 * # Safety
 * `newest` is NULL or a table whose header says what it is.
 */
DLRO_MUST_USE
dlro_status dlro_exchange_api_select(const struct DLPackExchangeAPIHeader *newest,
                                     const struct DLPackExchangeAPI **out);

/**
 * Copies a tensor of any layout into new memory: row-major, writable, aligned to 256 bytes, IS_COPIED set.
 *
 * Sub-byte elements stay packed or padded as they were.
 *
 * Ownership: on success `*out` belongs to the caller. On failure `*out` is NULL. The tensor stays the
 * caller's.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
 * `dlro_tensor_validate`; `DLRO_ERR_DEVICE` (the host cannot read the memory), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any, also while others call const functions on the tensor; nobody may write the elements
 * meanwhile. Rule: DLPack 1.3, `DLPACK_FLAG_BITMASK_IS_COPIED`; array API 2025.12, `copy=True`.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor whose memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_copy(const struct DLManagedTensorVersioned *tensor,
                             struct DLManagedTensorVersioned **out);

/**
 * Copies the elements of `source` over those of `target`; each may have any layout, the shapes and dtypes are
 * the same.
 *
 * Where the two share memory the result is as if `source` had been copied away first.
 *
 * Ownership: none changes hands. On failure no element was written.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` for either; `DLRO_ERR_READ_ONLY` (the target
 * is), `DLRO_ERR_DTYPE` (they differ, one packs and the other pads, or one does not exist), `DLRO_ERR_LAYOUT`
 * (the shapes differ, or elements of the target share memory), `DLRO_ERR_DEVICE` (the host cannot read one),
 * `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody may use the target, or write the source's elements, meanwhile.
 *
 * # Safety
 * Both are NULL or live managed tensors whose memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_copy_into(const struct DLManagedTensorVersioned *source,
                                  struct DLManagedTensorVersioned *target);

/**
 * Makes a buffer of `nbytes` zeroed bytes on pages of its own, writable.
 *
 * Ownership: on success `*out` is one reference, which the caller gives back with `dlro_buffer_release`. On
 * failure `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_NO_MEMORY`. Threads: any.
 *
 * # Safety
 * `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_buffer_new(size_t nbytes, struct dlro_buffer **out);

/**
 * Makes a buffer over host memory that the caller owns.
 *
 * `mutability` is what the caller promises of the memory, as in `dlro_tensor_export`. `flags`: 0 or
 * `DLRO_WRAP_SOLE`; without that bit writable memory can never become immutable, since the caller may still
 * write it. `release(owner)` is called once, when neither the buffer nor a tensor over it is left, on
 * whatever thread that happens; it may be NULL.
 *
 * Ownership: on success `*out` is one reference, and `owner` belongs to the buffer. On failure nothing was
 * taken over, `release` is not called, and `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL` (out, or data with `nbytes` > 0), `DLRO_ERR_ARGUMENT` (unknown mutability or flag),
 * `DLRO_ERR_BOUNDS` (`data + nbytes` leaves the address space), `DLRO_ERR_NO_MEMORY`. Threads: any.
 *
 * # Safety
 * `data` is readable for `nbytes` bytes, and writable if `mutability` says so, until `release` is called.
 */
DLRO_MUST_USE
dlro_status dlro_buffer_wrap(void *data,
                             size_t nbytes,
                             dlro_mutability mutability,
                             uint32_t flags,
                             void *owner,
                             void (*release)(void *owner),
                             struct dlro_buffer **out);

/**
 * Makes a buffer over `nbytes` bytes of a file from `offset` on, mapped read-only or copy-on-write; 0 bytes
 * stand for all up to the end of the file.
 *
 * `offset` may be any number of bytes. A read-only buffer is `DLRO_MUTABILITY_READ_ONLY`, and a copy-on-write
 * one can never become immutable: whoever can write the file can change what was not written here.
 *
 * Ownership: on success `*out` is one reference; it keeps the file mapped, and open where it may be mapped once more (read-only). On failure `*out` is NULL
 * and the file closed.
 *
 * Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
 * `DLRO_ERR_IO`, `DLRO_ERR_FORMAT` (no regular file, or shorter than `offset + nbytes`), `DLRO_ERR_BOUNDS`,
 * `DLRO_ERR_NO_MEMORY`. Threads: any.
 *
 * # Safety
 * `path` is NULL or a C string.
 */
DLRO_MUST_USE
dlro_status dlro_buffer_map(const char *path,
                            uint64_t offset,
                            uint64_t nbytes,
                            dlro_map_mode mode,
                            struct dlro_buffer **out);

/**
 * Turns a tensor into a buffer over the memory that it came with.
 *
 * Other tensors over that memory stay and count in its borrow rule; the tensor itself no longer does. A tensor
 * whose holder may do less than the memory below allows (a read-only one over writable memory) gives a buffer
 * with the tensor's mutability over the tensor's own bytes: rights do not grow on the way.
 *
 * Ownership: on success `tensor` has been released or is inside the buffer, and `*out` is one reference. On
 * failure `tensor` still belongs to the caller, and `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in
 * `dlro_tensor_import`; `DLRO_ERR_DEVICE` (the host cannot read the memory), `DLRO_ERR_NO_MEMORY`.
 * Threads: any; nobody else may use `tensor` meanwhile.
 *
 * # Safety
 * The caller owns `tensor`.
 */
DLRO_MUST_USE
dlro_status dlro_buffer_import(struct DLManagedTensorVersioned *tensor,
                               struct dlro_buffer **out);

/**
 * Takes one more reference to a buffer and answers the same pointer. NULL stays NULL. Never fails.
 *
 * Ownership: the answer is a reference of the caller's own; the buffer lives until it is given back.
 *
 * Threads: any, also while others use the buffer.
 *
 * # Safety
 * `buffer` is NULL or alive.
 */
struct dlro_buffer *dlro_buffer_retain(struct dlro_buffer *buffer);

/**
 * Gives one reference back. The memory goes with the last reference and the last tensor over it.
 *
 * NULL is accepted and nothing happens. Never fails, and leaves the last error message alone.
 *
 * Threads: any, at any time, also after `main`.
 *
 * # Safety
 * The caller owns a reference, which is used up.
 */
void dlro_buffer_release(struct dlro_buffer *buffer);

/**
 * Makes a tensor over a window of a buffer.
 *
 * `window` gives dtype, ndim, shape, strides (in elements; NULL for row-major) and byte_offset (in bytes). Its
 * `data` is NULL, which stands for the buffer's first byte, or an address in the buffer; its device is not
 * read, the tensor is on the CPU. Every element must lie within the buffer, with negative strides too.
 * `mutability`: what the tensor's holder may do. Any number of writable tensors or any number of immutable
 * ones may be alive over a buffer, never both; read-only ones stand in nobody's way.
 *
 * Ownership: on success `*out` belongs to the caller and keeps the memory alive by itself. On failure `*out`
 * is NULL. No reference to the buffer is used up.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mutability), `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` (the
 * window leaves the buffer), `DLRO_ERR_READ_ONLY` (a writable tensor over memory that is not),
 * `DLRO_ERR_NOT_IMMUTABLE` (an immutable tensor over memory that somebody outside may write),
 * `DLRO_ERR_BUSY` (tensors of the other kind are alive; the sentence has their number), `DLRO_ERR_LAYOUT` (a
 * writable window whose elements share memory), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any, also while others use the buffer.
 *
 * # Safety
 * `buffer` is NULL or alive; `window` and its arrays are readable.
 */
DLRO_MUST_USE
dlro_status dlro_buffer_export(const struct dlro_buffer *buffer,
                               const DLTensor *window,
                               dlro_mutability mutability,
                               struct DLManagedTensorVersioned **out);

/**
 * Turns a buffer's memory from writable into immutable for good, once no writable tensor over it is alive.
 *
 * `flags`: 0 or `DLRO_FREEZE_ENFORCE`, which also write-protects the pages. That works for memory on pages of
 * its own (`dlro_buffer_new`); neighbours are never touched. On an immutable buffer it does nothing, or adds
 * the protection.
 *
 * Ownership: none changes hands. On failure nothing changed.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown flag), `DLRO_ERR_BUSY` (writable tensors are alive;
 * the sentence has their number), `DLRO_ERR_NOT_IMMUTABLE` (somebody outside may write the memory),
 * `DLRO_ERR_UNSUPPORTED` (protection of pages that may hold other data too), `DLRO_ERR_IO` (mprotect failed).
 *
 * Threads: any, also while others use the buffer.
 *
 * # Safety
 * `buffer` is NULL or alive.
 */
DLRO_MUST_USE dlro_status dlro_buffer_freeze(struct dlro_buffer *buffer, uint32_t flags);

/**
 * Gives the size of a buffer in bytes; 0 for NULL. Never fails. Any thread.
 *
 * # Safety
 * `buffer` is NULL or alive.
 */
uint64_t dlro_buffer_nbytes(const struct dlro_buffer *buffer);

/**
 * Says what may happen to a buffer's memory; `DLRO_MUTABILITY_READ_ONLY` for NULL. Never fails. Any thread.
 *
 * # Safety
 * `buffer` is NULL or alive.
 */
dlro_mutability dlro_buffer_mutability(const struct dlro_buffer *buffer);

/**
 * Counts the writable and the immutable tensors that are alive over a buffer now.
 *
 * Ownership: none changes hands. Status: `DLRO_ERR_NULL`. Threads: any; the answer may be old by the time that
 * it arrives.
 *
 * # Safety
 * `buffer` is NULL or alive; the outputs are writable.
 */
DLRO_MUST_USE
dlro_status dlro_buffer_tensor_counts(const struct dlro_buffer *buffer,
                                      uint64_t *writable,
                                      uint64_t *immutable);

/**
 * Maps a NumPy `.npy` file (format 1.0, 2.0 or 3.0) as a tensor, in C or Fortran order as the file says.
 *
 * Nothing is read but the header, so the time does not depend on the size. The data is aligned as the file
 * aligns it: NumPy since 1.14 to 64 bytes, other writers to anything.
 * A read-only tensor is `DLRO_MUTABILITY_READ_ONLY`, not IMMUTABLE: whoever can write the file can change
 * it. Nobody may shorten the file while the tensor lives; reading behind its end is SIGBUS.
 *
 * Ownership: on success `*out` belongs to the caller; it keeps the file mapped, and open where it may be mapped once more (read-only). On failure `*out`
 * is NULL and the file closed.
 *
 * Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
 * `DLRO_ERR_IO` (open, fstat, read or mmap failed), `DLRO_ERR_FORMAT` (no regular file, not `.npy`, corrupt
 * or truncated; the sentence says what was found at which byte), `DLRO_ERR_DTYPE` (objects, structures,
 * strings, dates, the other byte order: what DLPack cannot say), `DLRO_ERR_BOUNDS` (a negative or overflowing
 * shape), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any. Rule: NumPy enhancement proposal 1, "A simple file format for NumPy arrays".
 *
 * # Safety
 * `path` is NULL or a C string.
 */
DLRO_MUST_USE
dlro_status dlro_npy_map(const char *path,
                         dlro_map_mode mode,
                         struct DLManagedTensorVersioned **out);

/**
 * Maps a safetensors file. Its tensors are then had by number or by name without reading more of the file.
 *
 * Only the header is read, and all of it is checked, so the time does not depend on the size of the elements.
 * Refused are: a wrong header length, text that is not JSON or has other types than it should, a name twice,
 * `data_offsets` that overlap, leave a hole or do not fit shape and dtype, elements that end in the middle of a
 * byte, and a file that is longer or shorter than the tensors. Header keys that the format does not have yet
 * are skipped. The order of the tensors is that of their elements in the file.
 *
 * Ownership: on success `*out` belongs to the caller; it keeps the file mapped, and open where it may be mapped once
 * more (read-only), and so does every tensor that is made from it, on its own. On failure `*out` is NULL and the
 * file closed.
 *
 * Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (unknown mode),
 * `DLRO_ERR_IO` (open, fstat, read or mmap failed), `DLRO_ERR_FORMAT` (no regular file, not safetensors,
 * corrupt or truncated, a NUL in a name or in metadata, over 1024 dimensions; the sentence says what was found at which byte or for
 * which tensor), `DLRO_ERR_DTYPE` (none of the format), `DLRO_ERR_BOUNDS` (a number of elements, a dimension or a
 * size above 2^63 - 1), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any. Rule: safetensors 0.8, "Format"; where text and crate differ (spaces before the first '{'), the
 * crate.
 *
 * # Safety
 * `path` is NULL or a C string.
 */
DLRO_MUST_USE
dlro_status dlro_safetensors_map(const char *path,
                                 dlro_map_mode mode,
                                 struct dlro_archive **out);

/**
 * The number of tensors in the file; 0 for NULL. Never fails. Any thread.
 *
 * # Safety
 * `archive` is NULL or a live archive.
 */
size_t dlro_archive_count(const struct dlro_archive *archive);

/**
 * The name of the tensor number `index`, from 0 on in the order of the elements in the file: UTF-8,
 * NUL-terminated.
 *
 * Ownership: `*out` is the archive's and lives as long as it does. On failure it is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such tensor).
 *
 * Threads: any, also while others use the archive.
 *
 * # Safety
 * `archive` is NULL or a live archive.
 */
DLRO_MUST_USE
dlro_status dlro_archive_name(const struct dlro_archive *archive,
                              size_t index,
                              const char **out);

/**
 * The number of the tensor called `name`, by binary search.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (no tensor is called so; `*index` is 0 then).
 *
 * Threads: any, also while others use the archive.
 *
 * # Safety
 * `archive` is NULL or a live archive, `name` is NULL or a C string.
 */
DLRO_MUST_USE
dlro_status dlro_archive_find(const struct dlro_archive *archive,
                              const char *name,
                              size_t *index);

/**
 * Makes a tensor over the elements of the tensor number `index`: row-major, on the CPU, read-only or
 * copy-on-write as the archive was mapped.
 *
 * All tensors of an archive lie in one mapping. A read-only one is `DLRO_MUTABILITY_READ_ONLY`; imported with
 * `DLRO_ACCESS_WRITE` it gets a copy-on-write mapping of its own pages only. Copy-on-write tensors made twice from
 * one index show the same memory. The data is aligned as the file aligns it, often not even to its
 * own size. F4, F6_E2M3 and F6_E3M2 are packed, as in the file. Nobody may shorten the file while the tensor
 * lives; reading behind its end is SIGBUS.
 *
 * Ownership: on success `*out` belongs to the caller. It does not need the archive, which may be released
 * first. On failure `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such tensor), `DLRO_ERR_DTYPE` (on a big-endian machine: the
 * file's byte order), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any, also while others use the archive. Rule: safetensors 0.8, "Format".
 *
 * # Safety
 * `archive` is NULL or a live archive.
 */
DLRO_MUST_USE
dlro_status dlro_archive_tensor(const struct dlro_archive *archive,
                                size_t index,
                                struct DLManagedTensorVersioned **out);

/**
 * The number of pairs in the file's `__metadata__`; 0 for NULL. Never fails. Any thread.
 *
 * # Safety
 * `archive` is NULL or a live archive.
 */
size_t dlro_archive_metadata_count(const struct dlro_archive *archive);

/**
 * Pair number `index` of the file's `__metadata__`, from 0 on in the header's order: UTF-8, NUL-terminated.
 *
 * Ownership: `*key` and `*value` are the archive's and live as long as it does. On failure they are NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_BOUNDS` (no such pair).
 *
 * Threads: any, also while others use the archive.
 *
 * # Safety
 * `archive` is NULL or a live archive.
 */
DLRO_MUST_USE
dlro_status dlro_archive_metadata(const struct dlro_archive *archive,
                                  size_t index,
                                  const char **key,
                                  const char **value);

/**
 * Closes the file. Tensors that were made from it live on. NULL is accepted. Never fails. Any thread.
 *
 * # Safety
 * `archive` is NULL or a live archive, which nobody uses afterwards.
 */
void dlro_archive_release(struct dlro_archive *archive);

/**
 * Saves a tensor of any layout as a NumPy `.npy` file, format 1.0, byte for byte as `numpy.save` saves that array.
 *
 * Column-major tensors are saved with `fortran_order` as they lie; other strided ones in C order, through a
 * buffer of 1 MiB at most. Dense ones are written straight from memory.
 * The file appears at once and whole: it is written under a temporary name in the same folder, brought to the
 * disk, and renamed. A reader or a mapping of the old file keeps the old content, so a tensor may be saved over
 * the very file that it is mapped from. A symbolic link is replaced itself, and what is no regular file is not
 * replaced. The mode is 0666 less the umask.
 *
 * Ownership: the tensor stays the caller's. On failure the old file is as it was and the temporary one is gone,
 * but for one case: where the sentence says "fsync of the folder", the new file is in place and a
 * crash of the machine may undo that.
 *
 * Status, each with the path in front of its sentence: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` as
 * in `dlro_tensor_validate`, `DLRO_ERR_BOUNDS` also for more than NumPy's 64 dimensions; `DLRO_ERR_DTYPE` (bfloat16,
 * float8 and below, integers below 8 bits, more than one lane: what NumPy has no name for), `DLRO_ERR_DEVICE`
 * (the host cannot read the memory), `DLRO_ERR_IO` (what the system refused: open, write, no space, fsync, rename;
 * or the path exists and is no regular file), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody may write the elements meanwhile. Rule: `numpy.lib.format.write_array` of NumPy 2.
 *
 * # Safety
 * `path` is NULL or a C string; `tensor` is NULL or a live managed tensor whose memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_npy_save(const char *path,
                          const struct DLManagedTensorVersioned *tensor);

/**
 * Saves `count` tensors of any layout, each under its name, as a safetensors file.
 *
 * The file is, byte for byte, what `safetensors.numpy.save_file` writes: the wider dtypes first, and those of one
 * dtype by name, whatever order they are given in. `metadata_count` pairs `metadata_keys[i]`, `metadata_values[i]`
 * become its `__metadata__`, in that order; with none there is no such key. All text is UTF-8.
 * Each array may be NULL where its count is 0. The elements are saved in C order; see `dlro_npy_save` for how
 * strided ones are written and how the file takes the place of an old one.
 *
 * Ownership: everything stays the caller's. On failure as in `dlro_npy_save`.
 *
 * Status, each with the path in front of its sentence, and the tensor's name where it is one tensor's fault:
 * `DLRO_ERR_NULL` (also an element of an array), `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS` as in
 * `dlro_tensor_validate`, `DLRO_ERR_BOUNDS` also for a header above 100 MB; `DLRO_ERR_ARGUMENT` (a name or key that
 * is there twice or no UTF-8, a tensor called `__metadata__`), `DLRO_ERR_DTYPE` (the format has no name for it;
 * padded sub-byte elements, or packed ones that end within a byte), `DLRO_ERR_DEVICE`, `DLRO_ERR_IO`,
 * `DLRO_ERR_UNSUPPORTED` (a big-endian machine), `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any; nobody may write the elements meanwhile. Rule: safetensors 0.8, "Format" and `serialize`.
 *
 * # Safety
 * `path` is NULL or a C string; the arrays hold as many pointers as their counts say, to C strings and to live
 * managed tensors whose memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_safetensors_save(const char *path,
                                  size_t count,
                                  const char *const *names,
                                  const struct DLManagedTensorVersioned *const *tensors,
                                  size_t metadata_count,
                                  const char *const *metadata_keys,
                                  const char *const *metadata_values);

/**
 * Copies a tensor into memory that the kernel seals: from then on no process can write, shrink or grow it.
 *
 * The content is a valid `.npy` file, so that a process without this library can map it too, as
 * `/proc/self/fd/N`. The descriptor can be passed to another process over a Unix socket.
 *
 * Ownership: on success `*fd_out` is an open descriptor (close-on-exec), which the caller closes. On failure it
 * is -1. The tensor stays the caller's.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_VERSION`, `DLRO_ERR_BOUNDS`; `DLRO_ERR_DTYPE` (also one that `.npy` cannot
 * say, such as bfloat16); `DLRO_ERR_DEVICE`; `DLRO_ERR_NO_MEMORY`; `DLRO_ERR_IO`; `DLRO_ERR_UNSUPPORTED` (not
 * Linux).
 *
 * Threads: any, also while others call const functions on the tensor; nobody may write the elements meanwhile.
 * Rule: memfd_create(2), fcntl(2) F_ADD_SEALS.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor whose memory is there.
 */
DLRO_MUST_USE
dlro_status dlro_tensor_seal(const struct DLManagedTensorVersioned *tensor,
                             int *fd_out);

/**
 * Makes a tensor over the `.npy` file behind a descriptor: IMMUTABLE if the kernel says that it is sealed
 * against writing, shrinking and growing, otherwise READ_ONLY.
 *
 * Nothing is read but the header.
 *
 * Ownership: on success `*out` belongs to the caller; it keeps a descriptor of its own. On failure `*out` is
 * NULL. `fd` stays the caller's either way.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_IO` (no open descriptor, or it cannot be read or mapped),
 * `DLRO_ERR_FORMAT`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS` as in `dlro_npy_map`; `DLRO_ERR_NO_MEMORY`.
 *
 * Threads: any. Rule: fcntl(2) F_GET_SEALS.
 *
 * # Safety
 * Nobody shortens an unsealed file while the tensor lives; `out` is writable.
 */
DLRO_MUST_USE dlro_status dlro_sealed_import(int fd, struct DLManagedTensorVersioned **out);

/**
 * Installs the guard: from now on a write to the protected memory of a watched tensor is reported on standard
 * error before the process goes on as it would have.
 *
 * The report names the tensor's label, the address, the byte offset, the dtype and the index that was written,
 * the address of the code that wrote, and the thread. Then the handler that was installed before runs (that of
 * Python's faulthandler, of a JVM or of Go, for example), or the process ends as without the guard. Calling it
 * again does nothing. Without it nothing is installed and nothing costs anything.
 *
 * Ownership: none changes hands; the handlers of SIGSEGV and SIGBUS change for the process and stay changed.
 *
 * Status: `DLRO_ERR_IO` (sigaction failed), `DLRO_ERR_UNSUPPORTED` (not Linux). Threads: any.
 * Rule: sigaction(2), signal-safety(7).
 */
DLRO_MUST_USE
dlro_status dlro_guard_install(void);

/**
 * Puts a tensor on the guard's list, under a label of up to 64 bytes of UTF-8.
 *
 * It takes a tensor of this library that is not writable. A write is noticed only where the pages are
 * protected: memory that `dlro_buffer_freeze` froze with `DLRO_FREEZE_ENFORCE`, that a file was mapped into
 * read-only, or that is sealed. At most 256 tensors are watched at a time.
 *
 * Ownership: on success `*out` belongs to the caller, who ends it with `dlro_watch_release`; until then it keeps
 * the memory, but not the tensor. On failure `*out` is NULL.
 *
 * Status: `DLRO_ERR_NULL`, `DLRO_ERR_ARGUMENT` (a foreign tensor, a label that is not UTF-8),
 * `DLRO_ERR_VERSION`, `DLRO_ERR_DTYPE`, `DLRO_ERR_BOUNDS`, `DLRO_ERR_UNSUPPORTED` (not Linux; a writable or empty
 * tensor; too many), `DLRO_ERR_NO_MEMORY`. Threads: any.
 *
 * # Safety
 * `tensor` is NULL or a live managed tensor; `label` is NULL or a C string.
 */
DLRO_MUST_USE
dlro_status dlro_guard_watch(const struct DLManagedTensorVersioned *tensor,
                             const char *label,
                             struct dlro_watch **out);

/**
 * Takes a tensor off the guard's list and lets its memory go. NULL is accepted and nothing happens. Never fails.
 *
 * Threads: any.
 *
 * # Safety
 * The caller owns `watch`.
 */
void dlro_watch_release(struct dlro_watch *watch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DLPACK_RO_H_ */

#endif /* a dlpack.h that this header can live with */
