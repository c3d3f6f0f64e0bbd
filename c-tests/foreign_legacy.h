/* Tensors of another library, legacy and versioned, on the heap: their deleters count, and whoever reads them
   afterwards reads freed memory, which valgrind and ASan see. */
#ifndef FOREIGN_LEGACY_H_
#define FOREIGN_LEGACY_H_

#include "check.h"

static const DLDataType FLOAT32 = {kDLFloat, 32, 1};
static const DLDataType UINT8 = {kDLUInt, 8, 1};

/* The context of a foreign tensor: arrays of exactly ndim numbers, and where deleters are counted. */
struct foreign_context {
  int64_t *shape, *strides;
  int *deleted;
};

static inline DLTensor host_tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape, int64_t *strides) {
  const DLTensor tensor = {data, {kDLCPU, 0}, ndim, dtype, shape, strides, 0};
  return tensor;
}

static inline int64_t *foreign_numbers(const int64_t *numbers, int32_t ndim) {
  int64_t *copied;
  if (numbers == NULL || ndim <= 0 || ndim > 1024) return (int64_t *)numbers;
  copied = (int64_t *)malloc((size_t)ndim * sizeof *copied);
  memcpy(copied, numbers, (size_t)ndim * sizeof *copied);
  return copied;
}

static inline struct foreign_context *foreign_context(DLTensor *tensor, int *deleted) {
  struct foreign_context *context = (struct foreign_context *)malloc(sizeof *context);
  tensor->shape = foreign_numbers(tensor->shape, tensor->ndim);
  tensor->strides = foreign_numbers(tensor->strides, tensor->ndim);
  context->shape = tensor->ndim > 0 && tensor->ndim <= 1024 ? tensor->shape : NULL;
  context->strides = tensor->ndim > 0 && tensor->ndim <= 1024 ? tensor->strides : NULL;
  context->deleted = deleted;
  return context;
}

static inline void foreign_end(void *manager_ctx) {
  struct foreign_context *context = (struct foreign_context *)manager_ctx;
  ++*context->deleted;
  free(context->shape);
  free(context->strides);
  free(context);
}

static inline void foreign_legacy_delete(DLManagedTensor *self) {
  foreign_end(self->manager_ctx);
  free(self);
}

static inline void foreign_versioned_delete(struct DLManagedTensorVersioned *self) {
  foreign_end(self->manager_ctx);
  free(self);
}

/* Sets *deleted to 0; its deleter adds 1. NULL strides stay NULL. */
static inline DLManagedTensor *foreign_legacy(DLTensor layout, int *deleted) {
  DLManagedTensor *tensor = (DLManagedTensor *)malloc(sizeof *tensor);
  *deleted = 0;
  tensor->manager_ctx = foreign_context(&layout, deleted);
  tensor->dl_tensor = layout;
  tensor->deleter = foreign_legacy_delete;
  return tensor;
}

static inline struct DLManagedTensorVersioned *foreign_versioned(DLTensor layout, uint32_t minor, uint64_t flags,
                                                                 int *deleted) {
  struct DLManagedTensorVersioned *tensor = (struct DLManagedTensorVersioned *)malloc(sizeof *tensor);
  *deleted = 0;
  tensor->version.major = 1;
  tensor->version.minor = minor;
  tensor->manager_ctx = foreign_context(&layout, deleted);
  tensor->deleter = foreign_versioned_delete;
  tensor->flags = flags;
  tensor->dl_tensor = layout;
  return tensor;
}

/* A tensor of DLPack 2: only the fields that every version has are there. */
static inline struct DLManagedTensorVersioned *foreign_of_version_2(int *deleted) {
  struct DLManagedTensorVersioned *tensor =
      (struct DLManagedTensorVersioned *)malloc(offsetof(struct DLManagedTensorVersioned, dl_tensor));
  DLTensor nothing = host_tensor(NULL, UINT8, 0, NULL, NULL);
  *deleted = 0;
  tensor->version.major = 2;
  tensor->version.minor = 0;
  tensor->manager_ctx = foreign_context(&nothing, deleted);
  tensor->deleter = foreign_versioned_delete;
  tensor->flags = 0;
  return tensor;
}

/* A producer's release(owner): owner is the counter. */
static inline void count_release(void *owner) { ++*(int *)owner; }

static inline const void *address_of(const struct DLManagedTensorVersioned *tensor) {
  const void *address = NULL;
  CHECK_OK(dlro_tensor_data(tensor, &address));
  return address;
}

/* An output that is not zeroed on failure keeps this. */
#define STALE(type) ((type *)(uintptr_t)0x5a5a5a50)

#endif
