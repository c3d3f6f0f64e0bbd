/* A producer that is not this library, and what the programs need to look at tensors. */
#ifndef PRODUCER_H_
#define PRODUCER_H_

#include "check.h"

#define READ_ONLY ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define IS_COPIED ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)
#define PADDED ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
/* A bit that no DLPack version defines. */
#define UNKNOWN_FLAG ((uint64_t)1 << 40)

#define LENGTH(array) ((int)(sizeof(array) / sizeof((array)[0])))

typedef struct DLManagedTensorVersioned Tensor;

/* The call fails like this, and its output, full of garbage before, is all zeros after. */
#define CHECK_REFUSED(output, call, expected, text)      \
  do {                                                   \
    memset(&(output), 0xA5, sizeof(output));             \
    CHECK_STATUS(call, expected, text);                  \
    CHECK(all_zero(&(output), sizeof(output)));          \
  } while (0)

static inline bool all_zero(const void *bytes, size_t size) {
  const unsigned char *byte = (const unsigned char *)bytes;
  size_t i;
  for (i = 0; i < size; i++) {
    if (byte[i] != 0) return false;
  }
  return true;
}

static inline DLDataType dtype(int code, int bits, int lanes) {
  DLDataType type;
  type.code = (uint8_t)code;
  type.bits = (uint8_t)bits;
  type.lanes = (uint16_t)lanes;
  return type;
}

/* A descriptor in CPU memory. */
static inline DLTensor describe(void *data, DLDataType type, int32_t ndim, int64_t *shape, int64_t *strides) {
  DLTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = ndim;
  tensor.dtype = type;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

static inline DLTensor on_device(DLTensor tensor, int32_t type, int32_t id) {
  tensor.device.device_type = (DLDeviceType)type;
  tensor.device.device_id = id;
  return tensor;
}

/* An owner for dlro_tensor_export: counts how often it was released. */
static inline void count_release(void *counter) { ++*(int *)counter; }

/* A managed tensor as another library makes it: everything in one block from malloc, fields as given. */
#define FOREIGN_NDIM 8
typedef struct {
  Tensor managed;
  int64_t shape[FOREIGN_NDIM], strides[FOREIGN_NDIM];
  int *deletions;
} Foreign;

static inline void foreign_delete(Tensor *self) {
  Foreign *foreign = (Foreign *)self->manager_ctx;
  ++*foreign->deletions;
  memset(foreign, 0xDD, sizeof *foreign);
  free(foreign);
}

/* Shape and strides are copied where they can be; wild pointers are passed on as they are. */
static inline Tensor *foreign_tensor(DLTensor tensor, uint32_t minor, uint64_t flags, int *deletions) {
  Foreign *foreign = (Foreign *)calloc(1, sizeof *foreign);
  int axis;
  if (foreign == NULL) abort();
  foreign->deletions = deletions;
  foreign->managed.version.major = 1;
  foreign->managed.version.minor = minor;
  foreign->managed.manager_ctx = foreign;
  foreign->managed.deleter = foreign_delete;
  foreign->managed.flags = flags;
  if (tensor.ndim > 0 && tensor.ndim <= FOREIGN_NDIM) {
    for (axis = 0; axis < tensor.ndim && tensor.shape != NULL; axis++) foreign->shape[axis] = tensor.shape[axis];
    for (axis = 0; axis < tensor.ndim && tensor.strides != NULL; axis++) {
      foreign->strides[axis] = tensor.strides[axis];
    }
    if (tensor.shape != NULL) tensor.shape = foreign->shape;
    if (tensor.strides != NULL) tensor.strides = foreign->strides;
  }
  foreign->managed.dl_tensor = tensor;
  return &foreign->managed;
}

/* A managed tensor without a deleter, where the caller wants it. */
static inline Tensor ownerless(DLTensor tensor, uint32_t minor, uint64_t flags) {
  Tensor managed;
  memset(&managed, 0, sizeof managed);
  managed.version.major = 1;
  managed.version.minor = minor;
  managed.flags = flags;
  managed.dl_tensor = tensor;
  return managed;
}

/* The address of the element with this row-major number. */
static inline const void *element(const Tensor *managed, int64_t number) {
  const DLTensor *tensor = &managed->dl_tensor;
  int64_t offset = 0;
  int axis;
  for (axis = tensor->ndim - 1; axis >= 0; axis--) {
    offset += number % tensor->shape[axis] * tensor->strides[axis];
    number /= tensor->shape[axis];
  }
  return (const char *)tensor->data + tensor->byte_offset + offset * (tensor->dtype.bits * tensor->dtype.lanes / 8);
}

static inline int32_t int32_at(const Tensor *managed, int64_t number) {
  int32_t value;
  memcpy(&value, element(managed, number), sizeof value);
  return value;
}

static inline bool is_address(const Tensor *managed, const void *first) {
  const void *data = NULL;
  CHECK_OK(dlro_tensor_data(managed, &data));
  return data == first;
}

static inline bool is_writable(Tensor *managed) {
  void *data = NULL;
  const int32_t status = dlro_tensor_data_mut(managed, &data);
  CHECK(status == DLRO_OK || status == DLRO_ERR_READ_ONLY || status == DLRO_ERR_LAYOUT);
  CHECK((status == DLRO_OK) == (data != NULL));
  return status == DLRO_OK;
}

#endif
