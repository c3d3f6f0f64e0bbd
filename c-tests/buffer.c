/* Chapter buffer: references, windows and their bounds, the borrow rule, freezing. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int releases;
static void count_release(void *owner) {
  (*(int *)owner)++;
  /* A callback may come back into the library. */
  CHECK(dlro_buffer_nbytes(NULL) == 0);
}

static DLTensor window(int64_t *shape, int64_t *strides, uint64_t byte_offset) {
  DLTensor tensor = {NULL, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, shape, strides, byte_offset};
  return tensor;
}

static void writes_and_dies(volatile char *address) {
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    *address = 1;
    _exit(0);
  }
  CHECK(waitpid(child, &state, 0) == child);
  /* A sanitizer turns the signal into an exit. */
  CHECK(WIFSIGNALED(state) || WEXITSTATUS(state) != 0);
}

static void windows_and_bounds(void) {
  dlro_buffer *buffer;
  struct DLManagedTensorVersioned *tensor = (struct DLManagedTensorVersioned *)&buffer;
  int64_t shape[1] = {10}, strides[1] = {1}, numbers[2] = {1, 2};
  DLTensor w = window(shape, strides, 0);
  const void *address;
  void *first;
  CHECK_OK(dlro_buffer_new(40, &buffer));
  CHECK(dlro_buffer_nbytes(buffer) == 40 && dlro_buffer_mutability(buffer) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor));
  CHECK_OK(dlro_tensor_data_mut(tensor, &first));
  CHECK(((int32_t *)first)[9] == 0 && tensor->flags == 0 && tensor->dl_tensor.strides[0] == 1);
  ((int32_t *)first)[9] = 9;
  dlro_tensor_release(tensor);

  w.byte_offset = 4;
  tensor = (struct DLManagedTensorVersioned *)&buffer;
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor), DLRO_ERR_BOUNDS,
               "from byte 4 to byte 44 of a memory of 40 bytes");
  CHECK(tensor == NULL);
  strides[0] = -1;
  w.byte_offset = 36;
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor));
  CHECK_OK(dlro_tensor_data(tensor, &address));
  CHECK(*(const int32_t *)address == 9);
  dlro_tensor_release(tensor);
  w.byte_offset = 32;
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor), DLRO_ERR_BOUNDS, "from byte -4");
  w.byte_offset = UINT64_MAX - 3;
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor), DLRO_ERR_BOUNDS, "");
  strides[0] = 0;
  w.byte_offset = 36;
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor), DLRO_ERR_LAYOUT, "share memory");
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor));
  dlro_tensor_release(tensor);
  shape[0] = 0;
  w.byte_offset = 1000000;
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor));
  dlro_tensor_release(tensor);
  w.shape = numbers;
  CHECK_STATUS(dlro_buffer_export(NULL, &w, 0, &tensor), DLRO_ERR_NULL, "buffer is NULL");
  CHECK_STATUS(dlro_buffer_export(buffer, NULL, 0, &tensor), DLRO_ERR_NULL, "window is NULL");
  CHECK_STATUS(dlro_buffer_export(buffer, &w, 0, NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK_STATUS(dlro_buffer_export(buffer, &w, 3, &tensor), DLRO_ERR_ARGUMENT, "mutability is 3");
  w.dtype.code = kDLOpaqueHandle;
  CHECK_STATUS(dlro_buffer_export(buffer, &w, 0, &tensor), DLRO_ERR_DTYPE, "opaque");
  dlro_buffer_release(buffer);
  dlro_buffer_release(NULL);
  CHECK(dlro_buffer_retain(NULL) == NULL);
  checked("windows lie within their buffer, strides and offset included, negative ones too");
}

static void borrow_rule(void) {
  dlro_buffer *buffer;
  struct DLManagedTensorVersioned *writers[2], *readers[2], *view;
  int64_t shape[1] = {4};
  DLTensor w = window(shape, NULL, 0);
  uint64_t writable, immutable;
  CHECK_OK(dlro_buffer_new(16, &buffer));
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[0]));
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[1]));
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_IMMUTABLE, &readers[0]), DLRO_ERR_BUSY, "2 are");
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &view));
  CHECK_STATUS(dlro_buffer_freeze(buffer, 0), DLRO_ERR_BUSY, "2 are");
  CHECK_OK(dlro_buffer_tensor_counts(buffer, &writable, &immutable));
  CHECK(writable == 2 && immutable == 0);
  dlro_tensor_release(writers[0]);
  CHECK_STATUS(dlro_buffer_freeze(buffer, 0), DLRO_ERR_BUSY, "1 are");
  dlro_tensor_release(writers[1]);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_IMMUTABLE, &readers[0]));
  CHECK_OK(dlro_tensor_share(readers[0], DLRO_MUTABILITY_IMMUTABLE, NULL, &readers[1]));
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[0]), DLRO_ERR_BUSY, "2 are");
  dlro_tensor_release(readers[0]);
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[0]), DLRO_ERR_BUSY, "1 are");
  dlro_tensor_release(readers[1]);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[0]));
  dlro_tensor_release(writers[0]);
  CHECK(dlro_tensor_mutability(view) == DLRO_MUTABILITY_READ_ONLY);
  CHECK_OK(dlro_buffer_freeze(buffer, 0));
  CHECK(dlro_tensor_mutability(view) == DLRO_MUTABILITY_IMMUTABLE);
  CHECK_OK(dlro_buffer_freeze(buffer, 0));
  CHECK(dlro_buffer_mutability(buffer) == DLRO_MUTABILITY_IMMUTABLE);
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &writers[0]), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_STATUS(dlro_buffer_freeze(buffer, 2), DLRO_ERR_ARGUMENT, "flags is 2");
  CHECK_STATUS(dlro_buffer_freeze(NULL, 0), DLRO_ERR_NULL, "buffer is NULL");
  CHECK_STATUS(dlro_buffer_tensor_counts(NULL, &writable, &immutable), DLRO_ERR_NULL, "buffer is NULL");
  /* The memory outlives the buffer's last reference. */
  dlro_buffer_release(buffer);
  dlro_tensor_release(view);
  checked("any number of writable tensors or of immutable ones, never both; frozen is for good");
}

static void wrapped(void) {
  static int32_t numbers[4] = {1, 2, 3, 4};
  dlro_buffer *buffer = NULL;
  struct DLManagedTensorVersioned *tensor;
  int64_t shape[1] = {4};
  DLTensor w = window(shape, NULL, 0);
  releases = 0;
  CHECK_STATUS(dlro_buffer_wrap(NULL, 4, 0, 0, &releases, count_release, &buffer), DLRO_ERR_NULL, "data is NULL");
  CHECK_STATUS(dlro_buffer_wrap(numbers, 16, 7, 0, &releases, count_release, &buffer), DLRO_ERR_ARGUMENT, "7");
  CHECK_STATUS(dlro_buffer_wrap(numbers, 16, 0, 4, &releases, count_release, &buffer), DLRO_ERR_ARGUMENT, "flags is 4");
  CHECK_STATUS(dlro_buffer_wrap(numbers, SIZE_MAX, 0, 0, &releases, count_release, &buffer), DLRO_ERR_BOUNDS, "");
  CHECK_STATUS(dlro_buffer_wrap(numbers, 16, 0, 0, &releases, count_release, NULL), DLRO_ERR_NULL, "out");
  CHECK(releases == 0 && buffer == NULL);
  CHECK_OK(dlro_buffer_wrap(numbers, sizeof numbers, DLRO_MUTABILITY_WRITABLE, 0, &releases, count_release, &buffer));
  CHECK_STATUS(dlro_buffer_freeze(buffer, 0), DLRO_ERR_NOT_IMMUTABLE, "lent");
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_IMMUTABLE, &tensor), DLRO_ERR_NOT_IMMUTABLE, "lent");
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor));
  CHECK(dlro_buffer_retain(buffer) == buffer);
  dlro_buffer_release(buffer);
  dlro_buffer_release(buffer);
  CHECK(releases == 0);
  dlro_tensor_release(tensor);
  CHECK(releases == 1);
  CHECK_OK(dlro_buffer_wrap(numbers, sizeof numbers, DLRO_MUTABILITY_WRITABLE, DLRO_WRAP_SOLE, &releases,
                            count_release, &buffer));
  CHECK_STATUS(dlro_buffer_freeze(buffer, DLRO_FREEZE_ENFORCE), DLRO_ERR_UNSUPPORTED, "share its pages");
  CHECK(dlro_buffer_mutability(buffer) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_buffer_freeze(buffer, 0));
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_IMMUTABLE, &tensor));
  dlro_buffer_release(buffer);
  dlro_tensor_release(tensor);
  CHECK(releases == 2);
  CHECK_OK(dlro_buffer_wrap(numbers, sizeof numbers, DLRO_MUTABILITY_READ_ONLY, 0, NULL, NULL, &buffer));
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor), DLRO_ERR_READ_ONLY, "");
  CHECK_STATUS(dlro_buffer_freeze(buffer, 0), DLRO_ERR_NOT_IMMUTABLE, "");
  dlro_buffer_release(buffer);
  checked("wrapped memory is released once, never on failure, and immutable only if nobody outside writes");
}

static void enforced(void) {
  dlro_buffer *buffer;
  struct DLManagedTensorVersioned *tensor;
  int64_t shape[1] = {4};
  DLTensor w = window(shape, NULL, 0);
  const void *address;
  CHECK_OK(dlro_buffer_new(10000, &buffer));
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor));
  CHECK_OK(dlro_tensor_data(tensor, &address));
  *(volatile char *)(size_t)address = 1;
  CHECK_OK(dlro_buffer_freeze(buffer, DLRO_FREEZE_ENFORCE));
  CHECK(*(const volatile char *)address == 1);
  writes_and_dies((volatile char *)(size_t)address);
  CHECK_OK(dlro_buffer_freeze(buffer, DLRO_FREEZE_ENFORCE));
  dlro_tensor_release(tensor);
  dlro_buffer_release(buffer);
  checked("enforced memory cannot be written, whoever tries");
}

static void mapped(void) {
  const char *path = "buffer-mapped.bin";
  dlro_buffer *buffer;
  struct DLManagedTensorVersioned *tensor;
  int64_t shape[1] = {3};
  DLTensor w = window(shape, NULL, 0);
  const void *address;
  void *first;
  int32_t content[5] = {10, 11, 12, 13, 14}, back[5];
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(content, sizeof content, 1, file) == 1 && fclose(file) == 0);
  CHECK_OK(dlro_buffer_map(path, 4, 12, DLRO_MAP_READ_ONLY, &buffer));
  CHECK(dlro_buffer_nbytes(buffer) == 12 && dlro_buffer_mutability(buffer) == DLRO_MUTABILITY_READ_ONLY);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_READ_ONLY, &tensor));
  CHECK_OK(dlro_tensor_data(tensor, &address));
  CHECK(((const int32_t *)address)[0] == 11 && ((const int32_t *)address)[2] == 13);
  dlro_tensor_release(tensor);
  CHECK_STATUS(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor), DLRO_ERR_READ_ONLY, "");
  dlro_buffer_release(buffer);
  CHECK_OK(dlro_buffer_map(path, 8, 0, DLRO_MAP_COPY_ON_WRITE, &buffer));
  CHECK(dlro_buffer_nbytes(buffer) == 12);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &tensor));
  CHECK_OK(dlro_tensor_data_mut(tensor, &first));
  *(int32_t *)first = 99;
  dlro_tensor_release(tensor);
  CHECK_STATUS(dlro_buffer_freeze(buffer, 0), DLRO_ERR_NOT_IMMUTABLE, "");
  dlro_buffer_release(buffer);
  file = fopen(path, "rb");
  CHECK(file != NULL && fread(back, sizeof back, 1, file) == 1 && fclose(file) == 0);
  CHECK(memcmp(content, back, sizeof back) == 0);
  CHECK_STATUS(dlro_buffer_map(path, 8, 13, 0, &buffer), DLRO_ERR_FORMAT, "buffer-mapped.bin: ");
  CHECK_STATUS(dlro_buffer_map(path, UINT64_MAX, 2, 0, &buffer), DLRO_ERR_BOUNDS, "");
  CHECK_STATUS(dlro_buffer_map("/", 0, 0, 0, &buffer), DLRO_ERR_FORMAT, "regular");
  CHECK_STATUS(dlro_buffer_map("no/such", 0, 0, 0, &buffer), DLRO_ERR_IO, "no/such: open failed: No such file");
  CHECK_STATUS(dlro_buffer_map(path, 0, 0, 9, &buffer), DLRO_ERR_ARGUMENT, "mode is 9");
  CHECK_STATUS(dlro_buffer_map(NULL, 0, 0, 0, &buffer), DLRO_ERR_NULL, "path is NULL");
  CHECK_OK(dlro_buffer_map(path, 20, 0, 0, &buffer));
  CHECK(dlro_buffer_nbytes(buffer) == 0);
  dlro_buffer_release(buffer);
  remove(path);
  checked("parts of files, read-only and copy-on-write; the file never changes");
}

static void foreign_deleter(struct DLManagedTensorVersioned *self) {
  releases++;
  free(self);
}

static void from_tensors(void) {
  static int32_t numbers[4] = {1, 2, 3, 4};
  int64_t shape[1] = {4};
  DLTensor w = window(shape, NULL, 0);
  dlro_buffer *buffer;
  struct DLManagedTensorVersioned *tensor, *other;
  uint64_t writable, immutable;
  CHECK_OK(dlro_tensor_new(&w, &tensor));
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_WRITABLE, NULL, &other));
  CHECK_OK(dlro_buffer_import(tensor, &buffer));
  CHECK_OK(dlro_buffer_tensor_counts(buffer, &writable, &immutable));
  CHECK(writable == 1 && immutable == 0 && dlro_buffer_nbytes(buffer) == 16);
  dlro_tensor_release(other);
  CHECK_OK(dlro_buffer_freeze(buffer, 0));
  dlro_buffer_release(buffer);

  releases = 0;
  tensor = (struct DLManagedTensorVersioned *)calloc(1, sizeof *tensor);
  CHECK(tensor != NULL);
  tensor->version.major = 2;
  tensor->deleter = foreign_deleter;
  CHECK_STATUS(dlro_buffer_import(tensor, &buffer), DLRO_ERR_VERSION, "version 2.0");
  CHECK(releases == 0 && buffer == NULL);
  tensor->version.major = 1;
  tensor->dl_tensor = w;
  tensor->dl_tensor.data = numbers;
  CHECK_OK(dlro_buffer_import(tensor, &buffer));
  CHECK(releases == 0);
  CHECK_OK(dlro_buffer_export(buffer, &w, DLRO_MUTABILITY_WRITABLE, &other));
  dlro_buffer_release(buffer);
  CHECK(releases == 0);
  dlro_tensor_release(other);
  CHECK(releases == 1);
  CHECK_STATUS(dlro_buffer_import(NULL, &buffer), DLRO_ERR_NULL, "tensor is NULL");
  checked("a tensor becomes a buffer, ours and a foreign one");
}

enum { THREADS = 4, ROUNDS = 2000 };
static dlro_buffer *hammered;
static int writers_inside, readers_inside;

static void *hammer(void *argument) {
  const int writes = *(const int *)argument;
  int64_t shape[1] = {4};
  DLTensor w = window(shape, NULL, 0);
  struct DLManagedTensorVersioned *tensor;
  int round;
  for (round = 0; round < ROUNDS; round++) {
    dlro_buffer *mine = dlro_buffer_retain(hammered);
    const int32_t status = dlro_buffer_export(
        mine, &w, writes ? DLRO_MUTABILITY_WRITABLE : DLRO_MUTABILITY_IMMUTABLE, &tensor);
    dlro_buffer_release(mine);
    if (status == DLRO_ERR_BUSY) continue;
    if (status != DLRO_OK) abort();
    __atomic_add_fetch(writes ? &writers_inside : &readers_inside, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(writes ? &readers_inside : &writers_inside, __ATOMIC_SEQ_CST) != 0) abort();
    __atomic_sub_fetch(writes ? &writers_inside : &readers_inside, 1, __ATOMIC_SEQ_CST);
    dlro_tensor_release(tensor);
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[THREADS];
  const int kinds[2] = {0, 1};
  uint64_t writable, immutable;
  int i;
  CHECK_OK(dlro_buffer_new(16, &hammered));
  for (i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, hammer, (void *)(size_t)&kinds[i % 2]) == 0);
  for (i = 0; i < THREADS; i++) CHECK(pthread_join(all[i], NULL) == 0);
  CHECK_OK(dlro_buffer_tensor_counts(hammered, &writable, &immutable));
  CHECK(writable == 0 && immutable == 0);
  dlro_buffer_release(hammered);
  checked("four threads never hold a writable and an immutable tensor at once");
}

int main(void) {
  windows_and_bounds();
  borrow_rule();
  wrapped();
  enforced();
  mapped();
  from_tensors();
  threads();
  return 0;
}
