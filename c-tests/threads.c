/* Rule const: what may run at the same time does, on many threads; the borrow rule holds meanwhile. */
#include "producer.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 6
#define ROUNDS 120
#define ELEMENTS 64

enum { W = DLRO_MUTABILITY_WRITABLE, R = DLRO_MUTABILITY_READ_ONLY, I = DLRO_MUTABILITY_IMMUTABLE };

/* CHECK counts, so on several threads at once it must not. */
#define MUST(condition)                                                                                      \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: MUST(%s) failed; last error: %s\n", __FILE__, __LINE__, #condition,            \
              dlro_last_error_message());                                                                    \
      _Exit(1);                                                                                              \
    }                                                                                                        \
  } while (0)

static pthread_barrier_t start;
static atomic_int released;

static void release(void *owner) { atomic_fetch_add((atomic_int *)owner, 1); }

static void on_threads(void *(*run)(void *), void *arguments, size_t size, int count) {
  pthread_t threads[2 * THREADS];
  int i;
  CHECK(pthread_barrier_init(&start, NULL, (unsigned)count) == 0);
  for (i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, run, (char *)arguments + size * (size_t)i) == 0);
  for (i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(pthread_barrier_destroy(&start) == 0);
}

/* --- const functions on one tensor --- */

typedef struct {
  const Tensor *tensor;
  int number;
} Reader;

static void *read_and_share(void *argument) {
  const Reader *reader = (const Reader *)argument;
  const Tensor *tensor = reader->tensor;
  int64_t shape[1] = {4}, lowest;
  DLTensor window = describe(NULL, dtype(kDLInt, 32, 1), 1, shape, NULL);
  int i;
  pthread_barrier_wait(&start);
  for (i = 0; i < ROUNDS; i++) {
    Tensor *all, *part, *copy, *none;
    const void *data, *other;
    uint64_t count, span;
    size_t length;
    bool answer;
    char line[200], expected[40];
    MUST(dlro_tensor_validate(tensor) == DLRO_OK);
    MUST(dlro_tensor_data(tensor, &data) == DLRO_OK);
    MUST(dlro_tensor_element_count(tensor, &count) == DLRO_OK && count == ELEMENTS);
    MUST(dlro_tensor_nbytes(tensor, &count) == DLRO_OK && count == 4 * ELEMENTS);
    MUST(dlro_tensor_span(tensor, &lowest, &span) == DLRO_OK && lowest == 0 && span == 4 * ELEMENTS);
    MUST(dlro_tensor_is_row_major(tensor, &answer) == DLRO_OK && answer);
    MUST(dlro_tensor_is_column_major(tensor, &answer) == DLRO_OK && answer);
    MUST(dlro_tensor_is_overlapping(tensor, &answer) == DLRO_OK && !answer);
    MUST(dlro_tensor_describe(tensor, line, sizeof line, &length) == DLRO_OK && length < sizeof line);
    MUST(dlro_tensor_mutability(tensor) == W);
    MUST(dlro_tensor_share(tensor, reader->number % 2 ? W : R, NULL, &all) == DLRO_OK);
    window.byte_offset = (uint64_t)(i % 60) * 4;
    MUST(dlro_tensor_share(all, R, &window, &part) == DLRO_OK);
    MUST(dlro_tensor_share(tensor, I, NULL, &none) != DLRO_OK && none == NULL);
    /* The last error is this thread's own. */
    MUST(dlro_tensor_share(tensor, 100 + (uint32_t)reader->number, NULL, &none) == DLRO_ERR_ARGUMENT);
    snprintf(expected, sizeof expected, "mutability is %d,", 100 + reader->number);
    MUST(dlro_tensor_copy(tensor, &copy) == DLRO_OK);
    dlro_tensor_release(all);
    MUST(dlro_tensor_data(part, &other) == DLRO_OK && other == (const char *)data + window.byte_offset);
    dlro_tensor_release(part);
    dlro_tensor_release(copy);
    MUST(strncmp(dlro_last_error_message(), expected, strlen(expected)) == 0);
  }
  return NULL;
}

static void const_functions(void) {
  static int32_t memory[ELEMENTS];
  int64_t shape[1] = {ELEMENTS};
  DLTensor layout = describe(memory, dtype(kDLInt, 32, 1), 1, shape, NULL);
  Reader readers[THREADS];
  Tensor *tensor;
  int i;
  CHECK_OK(dlro_tensor_export(&layout, IS_COPIED, W, &released, release, &tensor));
  for (i = 0; i < THREADS; i++) readers[i].tensor = tensor, readers[i].number = i;
  on_threads(read_and_share, readers, sizeof readers[0], THREADS);
  CHECK(atomic_load(&released) == 0 && tensor->flags == 0);
  /* Every share is out of the borrow state again. */
  CHECK_OK(dlro_tensor_freeze(tensor));
  dlro_tensor_release(tensor);
  CHECK(atomic_load(&released) == 1);
  checked("many threads share, query, copy and fail on one tensor; each has its own last error");
}

/* --- the last of many releases --- */

static void *release_one(void *argument) {
  pthread_barrier_wait(&start);
  dlro_tensor_release(*(Tensor **)argument);
  return NULL;
}

static void last_release(void) {
  static int32_t memory[ELEMENTS];
  int64_t shape[1] = {ELEMENTS};
  DLTensor layout = describe(memory, dtype(kDLInt, 32, 1), 1, shape, NULL);
  int round, i;
  for (round = 0; round < 16; round++) {
    Tensor *tensors[THREADS];
    atomic_store(&released, 0);
    CHECK_OK(dlro_tensor_export(&layout, 0, W, &released, release, &tensors[0]));
    for (i = 1; i < THREADS; i++) CHECK_OK(dlro_tensor_share(tensors[i % 2 ? 0 : i / 2], i % 2 ? W : R, NULL, &tensors[i]));
    on_threads(release_one, tensors, sizeof tensors[0], THREADS);
    CHECK(atomic_load(&released) == 1);
  }
  checked("case B6: tensors over one memory released at the same time on many threads: its owner is let go once");
}

/* --- writers against immutables --- */

typedef struct {
  const Tensor *base; /* read-only, alive all the time */
  Tensor *own;        /* a writer's */
  int number;
} Racer;

static atomic_int writers_gone, frozen, immutables;

/* Writes its elements, then tries to freeze: that can only work for the last writer of all. */
static void *write_then_freeze(const Racer *racer) {
  int32_t *data;
  void *address;
  int i;
  MUST(dlro_tensor_data_mut(racer->own, &address) == DLRO_OK);
  data = (int32_t *)address;
  for (i = 0; i < 200; i++) data[racer->number]++;
  if (dlro_tensor_freeze(racer->own) == DLRO_OK) {
    MUST(atomic_load(&writers_gone) == THREADS - 1);
    MUST(atomic_fetch_add(&frozen, 1) == 0);
    for (i = 0; i < THREADS; i++) MUST(data[i] == 200);
    atomic_fetch_add(&writers_gone, 1); /* only now */
  } else {
    atomic_fetch_add(&writers_gone, 1); /* before the release, so that it never lags behind */
  }
  dlro_tensor_release(racer->own);
  return NULL;
}

/* Wants an immutable tensor until it gets one: then every writer is gone, and what it wrote is there. */
static void *want_immutable(const Racer *racer) {
  Tensor *tensor;
  const void *address;
  const int32_t *data;
  int i;
  for (;;) {
    const int32_t status = dlro_tensor_share(racer->base, I, NULL, &tensor);
    if (status == DLRO_OK) break;
    MUST(status == DLRO_ERR_BUSY && tensor == NULL);
    sched_yield();
  }
  /* A writer that froze its tensor says so a moment after it did. */
  MUST(atomic_load(&writers_gone) >= THREADS - 1);
  MUST(dlro_tensor_mutability(tensor) == I);
  MUST(dlro_tensor_data(tensor, &address) == DLRO_OK);
  data = (const int32_t *)address;
  for (i = 0; i < THREADS; i++) MUST(data[i] == 200);
  atomic_fetch_add(&immutables, 1);
  dlro_tensor_release(tensor);
  return NULL;
}

static void *race(void *argument) {
  const Racer *racer = (const Racer *)argument;
  pthread_barrier_wait(&start);
  return racer->own != NULL ? write_then_freeze(racer) : want_immutable(racer);
}

static void borrow_rule(void) {
  int64_t shape[1] = {THREADS};
  DLTensor prototype = describe(NULL, dtype(kDLInt, 32, 1), 1, shape, NULL);
  int round, i, froze = 0;
  for (round = 0; round < 16; round++) {
    Racer racers[2 * THREADS];
    Tensor *first, *base;
    CHECK_OK(dlro_tensor_new(&prototype, &first));
    CHECK_OK(dlro_tensor_share(first, R, NULL, &base));
    for (i = 0; i < 2 * THREADS; i++) {
      racers[i].base = base, racers[i].own = NULL, racers[i].number = i / 2;
      if (i % 2 == 0) CHECK_OK(dlro_tensor_share(first, W, NULL, &racers[i].own));
    }
    dlro_tensor_release(first);
    atomic_store(&writers_gone, 0);
    atomic_store(&frozen, 0);
    atomic_store(&immutables, 0);
    on_threads(race, racers, sizeof racers[0], 2 * THREADS);
    CHECK(atomic_load(&writers_gone) == THREADS && atomic_load(&immutables) == THREADS);
    CHECK(atomic_load(&frozen) <= 1);
    froze += atomic_load(&frozen);
    CHECK_OK(dlro_tensor_freeze(base));
    dlro_tensor_release(base);
  }
  printf("       %d of 16 rounds ended with a frozen writer\n", froze);
  checked("borrow rule: writers and immutable tensors on many threads, never both at a time");
}

/* --- a tensor goes from thread to thread --- */

static void *hand_on(void *argument) {
  int64_t shape[1] = {ELEMENTS};
  DLTensor prototype = describe(NULL, dtype(kDLInt, 32, 1), 1, shape, NULL);
  Tensor *_Atomic *const slot = (Tensor * _Atomic *)argument;
  int i;
  pthread_barrier_wait(&start);
  for (i = 0; i < ROUNDS; i++) {
    Tensor *tensor, *shared;
    MUST(dlro_tensor_new(&prototype, &tensor) == DLRO_OK);
    MUST(dlro_tensor_share(tensor, R, NULL, &shared) == DLRO_OK);
    dlro_tensor_release(i % 2 ? shared : tensor);
    /* What another thread left there is released here. */
    dlro_tensor_release(atomic_exchange(slot, i % 2 ? tensor : shared));
  }
  return NULL;
}

static void hand_over(void) {
  static Tensor *_Atomic slot;
  on_threads(hand_on, (void *)&slot, 0, THREADS);
  dlro_tensor_release(atomic_exchange(&slot, NULL));
  checked("case B6: tensors made on one thread are released on another");
}

int main(void) {
  const_functions();
  last_release();
  borrow_rule();
  hand_over();
  return 0;
}
