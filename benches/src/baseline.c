/* The hand-written C producer that dlpack_ro is measured against: one malloc for everything, nothing checked. */
#include <stdlib.h>
#include <string.h>
#include <dlpack_ro.h>

typedef struct {
  struct DLManagedTensorVersioned managed;
  void *owner;
  void (*release)(void *owner);
  int64_t numbers[];
} producer;

static void producer_delete(struct DLManagedTensorVersioned *self) {
  producer *p = (producer *)self->manager_ctx;
  p->release(p->owner);
  free(p);
}

int baseline_export(const DLTensor *layout, uint64_t flags, uint32_t read_only, void *owner,
                    void (*release)(void *owner), struct DLManagedTensorVersioned **out) {
  const size_t ndim = (size_t)layout->ndim;
  producer *p = (producer *)malloc(sizeof(producer) + 2 * ndim * sizeof(int64_t));
  if (p == NULL) return -1;
  memcpy(p->numbers, layout->shape, ndim * sizeof(int64_t));
  if (layout->strides != NULL) {
    memcpy(p->numbers + ndim, layout->strides, ndim * sizeof(int64_t));
  } else {
    int64_t step = 1;
    for (size_t i = ndim; i-- > 0;) {
      p->numbers[ndim + i] = step;
      step *= layout->shape[i];
    }
  }
  p->owner = owner;
  p->release = release;
  p->managed.version.major = 1;
  p->managed.version.minor = 0;
  p->managed.manager_ctx = p;
  p->managed.deleter = producer_delete;
  p->managed.flags = flags | (read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0);
  p->managed.dl_tensor = *layout;
  p->managed.dl_tensor.shape = p->numbers;
  p->managed.dl_tensor.strides = p->numbers + ndim;
  *out = &p->managed;
  return 0;
}
