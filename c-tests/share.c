/* Chapter release, share, freeze: how tensors end, multiply, and stop changing. */
#include "producer.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { W = DLRO_MUTABILITY_WRITABLE, R = DLRO_MUTABILITY_READ_ONLY, I = DLRO_MUTABILITY_IMMUTABLE };

static int released;
static int32_t numbers[24];
static DLDataType i32;

static void reset(void) {
  int i;
  for (i = 0; i < 24; i++) numbers[i] = i;
  released = 0;
}

static Tensor *lend(DLTensor layout, uint64_t flags, uint32_t mutability) {
  Tensor *tensor = NULL;
  CHECK_OK(dlro_tensor_export(&layout, flags, mutability, &released, count_release, &tensor));
  return tensor;
}

static Tensor *own(int64_t count) {
  DLTensor prototype = describe(NULL, i32, 1, &count, NULL);
  Tensor *tensor = NULL;
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  return tensor;
}

static Tensor *share(const Tensor *tensor, uint32_t mutability) {
  Tensor *out = NULL;
  CHECK_OK(dlro_tensor_share(tensor, mutability, NULL, &out));
  CHECK(out != NULL && out != tensor);
  CHECK(dlro_tensor_mutability(out) >= mutability);
  return out;
}

static void wholes(void) {
  int64_t shape[2] = {3, 4}, strides[2] = {-4, 1};
  DLTensor layout = describe(numbers + 4, i32, 2, shape, strides);
  Tensor *tensor, *shared;
  uint32_t from;
  int i;
  reset();
  layout.byte_offset = 16;
  for (from = W; from <= I; from++) {
    tensor = lend(layout, IS_COPIED, from);
    CHECK(tensor->flags == (IS_COPIED | (from == W ? 0 : READ_ONLY)));
    shared = share(tensor, from);
    CHECK(shared->flags == (from == W ? 0 : READ_ONLY) && tensor->flags == shared->flags);
    CHECK(shared->dl_tensor.data == numbers + 4 && shared->dl_tensor.byte_offset == 16);
    CHECK(shared->dl_tensor.shape != tensor->dl_tensor.shape && shared->dl_tensor.strides != tensor->dl_tensor.strides);
    CHECK(memcmp(shared->dl_tensor.shape, shape, sizeof shape) == 0);
    CHECK(memcmp(shared->dl_tensor.strides, strides, sizeof strides) == 0);
    CHECK_OK(dlro_tensor_validate(shared));
    for (i = 0; i < 12; i++) CHECK(int32_at(shared, i) == int32_at(tensor, i));
    CHECK(is_writable(shared) == (from == W) && is_writable(tensor) == (from == W));
    dlro_tensor_release(tensor);
    CHECK(released == 0 && int32_at(shared, 0) == 8);
    dlro_tensor_release(shared);
    CHECK(released == 1);
    released = 0;
  }
  checked("rule flags: a share is the same elements; IS_COPIED goes from both, READ_ONLY stays with both");
}

static void rights(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  Tensor *tensor, *out, *shared;
  reset();
  tensor = lend(layout, 0, R);
  CHECK_REFUSED(out, dlro_tensor_share(tensor, W, NULL, &out), DLRO_ERR_READ_ONLY, "a writable one cannot be made from it");
  CHECK_REFUSED(out, dlro_tensor_share(tensor, I, NULL, &out), DLRO_ERR_NOT_IMMUTABLE, "whoever owns it may still write it");
  dlro_tensor_release(tensor);
  tensor = lend(layout, 0, I);
  CHECK_REFUSED(out, dlro_tensor_share(tensor, W, NULL, &out), DLRO_ERR_READ_ONLY, "the tensor is read-only");
  shared = share(tensor, R);
  CHECK(dlro_tensor_mutability(shared) == I); /* nobody can write it */
  dlro_tensor_release(share(shared, I));
  dlro_tensor_release(shared);
  dlro_tensor_release(tensor);
  tensor = lend(layout, 0, W);
  CHECK_REFUSED(out, dlro_tensor_share(tensor, I, NULL, &out), DLRO_ERR_NOT_IMMUTABLE, "whoever lent it may still write it");
  shared = share(tensor, R);
  CHECK_REFUSED(out, dlro_tensor_share(shared, W, NULL, &out), DLRO_ERR_READ_ONLY, "the tensor is read-only");
  CHECK_REFUSED(out, dlro_tensor_share(shared, I, NULL, &out), DLRO_ERR_NOT_IMMUTABLE, "whoever lent it");
  CHECK(is_writable(tensor) && !is_writable(shared));
  dlro_tensor_release(shared);

  /* Somebody else set the flag on our tensor: that right is gone too. */
  tensor->flags |= READ_ONLY;
  CHECK(!is_writable(tensor) && dlro_tensor_mutability(tensor) == R);
  CHECK_REFUSED(out, dlro_tensor_share(tensor, W, NULL, &out), DLRO_ERR_READ_ONLY, "the tensor is read-only");
  dlro_tensor_release(share(tensor, R));
  dlro_tensor_release(tensor);
  CHECK(released == 3);
  checked("rule rights never grow: what can be shared from what, lent memory");
}

static void borrow_rule(void) {
  Tensor *a, *b, *c, *out;
  a = own(4);
  CHECK_REFUSED(out, dlro_tensor_share(a, I, NULL, &out), DLRO_ERR_BUSY, "while writable tensors over it are alive; 1 are");
  b = share(a, W);
  CHECK_REFUSED(out, dlro_tensor_share(a, I, NULL, &out), DLRO_ERR_BUSY, "alive; 2 are");
  c = share(b, R);
  CHECK_REFUSED(out, dlro_tensor_share(c, I, NULL, &out), DLRO_ERR_BUSY, "alive; 2 are");
  CHECK_STATUS(dlro_tensor_freeze(a), DLRO_ERR_BUSY, "alive; 1 are");
  CHECK_STATUS(dlro_tensor_freeze(c), DLRO_ERR_BUSY, "alive; 2 are");
  CHECK(is_writable(a) && a->flags == 0 && dlro_tensor_mutability(c) == R);
  dlro_tensor_release(a);
  CHECK_REFUSED(out, dlro_tensor_share(c, I, NULL, &out), DLRO_ERR_BUSY, "alive; 1 are");
  dlro_tensor_release(b);
  a = share(c, I);
  b = share(c, I);
  CHECK_REFUSED(out, dlro_tensor_share(c, W, NULL, &out), DLRO_ERR_READ_ONLY, "read-only");
  dlro_tensor_release(b);
  dlro_tensor_release(c);
  CHECK(dlro_tensor_mutability(a) == I && int32_at(a, 3) == 0);
  dlro_tensor_release(a);
  checked("borrow rule: no immutable tensor while writable ones live, and their number is said");

  a = own(4);
  CHECK_OK(dlro_tensor_freeze(a));
  CHECK(a->flags == READ_ONLY && dlro_tensor_mutability(a) == I && !is_writable(a));
  CHECK_OK(dlro_tensor_freeze(a));
  CHECK_REFUSED(out, dlro_tensor_share(a, W, NULL, &out), DLRO_ERR_READ_ONLY, "read-only");
  b = share(a, I);
  c = share(a, R);
  dlro_tensor_release(a);
  CHECK_OK(dlro_tensor_freeze(b));
  CHECK_OK(dlro_tensor_freeze(c));
  CHECK(dlro_tensor_mutability(c) == I);
  dlro_tensor_release(b);
  dlro_tensor_release(c);
  checked("borrow rule: no writable tensor while immutable ones live; freeze twice is freeze once");

  a = own(4);
  b = share(a, W);
  dlro_tensor_release(a);
  CHECK_OK(dlro_tensor_freeze(b));
  CHECK(dlro_tensor_mutability(b) == I);
  dlro_tensor_release(b);
  checked("the last writer of several can be frozen");
}

static void freezing(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  dlro_import_options adopt = DLRO_IMPORT_OPTIONS_INIT;
  Tensor *tensor, *foreign;
  adopt.flags = DLRO_IMPORT_ADOPT;
  reset();
  CHECK_STATUS(dlro_tensor_freeze(NULL), DLRO_ERR_NULL, "tensor is NULL");
  foreign = foreign_tensor(layout, 0, 0, &released);
  CHECK_STATUS(dlro_tensor_freeze(foreign), DLRO_ERR_ARGUMENT, "was not made by this library; import it with");
  CHECK(foreign->flags == 0);
  CHECK_OK(dlro_tensor_import(foreign, &adopt, &tensor));
  CHECK_STATUS(dlro_tensor_freeze(tensor), DLRO_ERR_NOT_IMMUTABLE, "whoever lent it may still write it");
  CHECK(tensor->flags == 0);
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_tensor_import(foreign_tensor(layout, 0, IS_COPIED, &released), &adopt, &tensor));
  CHECK_OK(dlro_tensor_freeze(tensor));
  CHECK(tensor->flags == (IS_COPIED | READ_ONLY));
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_tensor_import(foreign_tensor(layout, 0, READ_ONLY, &released), &adopt, &tensor));
  CHECK_STATUS(dlro_tensor_freeze(tensor), DLRO_ERR_NOT_IMMUTABLE, "whoever owns it may still write it");
  dlro_tensor_release(tensor);
  tensor = lend(layout, 0, W);
  CHECK_STATUS(dlro_tensor_freeze(tensor), DLRO_ERR_NOT_IMMUTABLE, "whoever lent it");
  dlro_tensor_release(tensor);
  tensor = lend(layout, 0, R);
  CHECK_STATUS(dlro_tensor_freeze(tensor), DLRO_ERR_NOT_IMMUTABLE, "whoever owns it");
  dlro_tensor_release(tensor);
  tensor = lend(layout, 0, I);
  CHECK_OK(dlro_tensor_freeze(tensor));
  dlro_tensor_release(tensor);
  tensor = lend(layout, IS_COPIED, W);
  CHECK_OK(dlro_tensor_freeze(tensor));
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_tensor_copy(tensor = lend(layout, 0, R), &foreign));
  CHECK_OK(dlro_tensor_freeze(foreign));
  dlro_tensor_release(foreign);
  dlro_tensor_release(tensor);
  CHECK(released == 8);
  checked("freeze: every status; a copy is its holder's, lent memory is not");
}

static void windows(void) {
  int64_t shape[2] = {4, 6}, window_shape[3], window_strides[3], lowest;
  DLTensor layout = describe(numbers, i32, 2, shape, NULL), window;
  Tensor *tensor, *out;
  uint64_t nbytes;
  int base, k;
  reset();
  for (base = 0; base < 2; base++) {
    /* data as NULL, which stands for the tensor's own, and as an address. */
    tensor = lend(layout, 0, W);
    window = tensor->dl_tensor;
    if (base == 0) window.data = NULL;
    window.shape = window_shape, window.strides = window_strides;
    window_shape[0] = 2, window_shape[1] = 3, window_strides[0] = 12, window_strides[1] = 2;
    window.byte_offset = 4;
    window.device.device_type = (DLDeviceType)12345; /* not read */
    CHECK_OK(dlro_tensor_share(tensor, W, &window, &out));
    memset(window_shape, 0xEE, sizeof window_shape);
    CHECK(out->dl_tensor.device.device_type == kDLCPU && out->dl_tensor.shape[1] == 3);
    for (k = 0; k < 6; k++) CHECK(int32_at(out, k) == 1 + k / 3 * 12 + k % 3 * 2);
    CHECK(is_writable(out));
    dlro_tensor_release(out);

    window.ndim = 1, window_shape[0] = 24, window_strides[0] = -1, window.byte_offset = 23 * 4;
    CHECK_OK(dlro_tensor_share(tensor, R, &window, &out));
    for (k = 0; k < 24; k++) CHECK(int32_at(out, k) == 23 - k);
    CHECK_OK(dlro_tensor_span(out, &lowest, &nbytes));
    CHECK(lowest == -92 && nbytes == 96);
    dlro_tensor_release(out);

    window.strides = NULL, window.byte_offset = 90, window.dtype = dtype(kDLUInt, 8, 1), window_shape[0] = 6;
    CHECK_OK(dlro_tensor_share(tensor, R, &window, &out));
    CHECK(is_address(out, (char *)numbers + 90) && out->dl_tensor.strides[0] == 1);
    CHECK(*(const uint8_t *)element(out, 2) == 23);
    dlro_tensor_release(out);

    window.ndim = 0, window.shape = (int64_t *)1, window.strides = (int64_t *)1, window.byte_offset = 95;
    CHECK_OK(dlro_tensor_share(tensor, R, &window, &out));
    CHECK(is_address(out, (char *)numbers + 95) && out->dl_tensor.shape == NULL);
    dlro_tensor_release(out);

    window = tensor->dl_tensor;
    if (base == 0) window.data = NULL;
    window.ndim = 1, window.shape = window_shape, window.strides = window_strides, window_shape[0] = 5;
    window_strides[0] = 0;
    CHECK_REFUSED(out, dlro_tensor_share(tensor, W, &window, &out), DLRO_ERR_LAYOUT, "share memory with each other");
    CHECK_OK(dlro_tensor_share(tensor, R, &window, &out));
    CHECK(!is_writable(out) && int32_at(out, 4) == 0);
    dlro_tensor_release(out);
    window_shape[0] = 0, window.byte_offset = 1000000;
    CHECK_OK(dlro_tensor_share(tensor, W, &window, &out));
    CHECK(is_address(out, NULL));
    dlro_tensor_release(out);
    dlro_tensor_release(tensor);
  }
  /* A slice gives its data as another address, in front of the tensor's window too. */
  shape[0] = 3;
  tensor = lend(describe(numbers + 6, i32, 2, shape, NULL), 0, W);
  window = describe(numbers + 20, i32, 1, window_shape, NULL), window_shape[0] = 4;
  CHECK_OK(dlro_tensor_share(tensor, W, &window, &out));
  CHECK(is_address(out, numbers + 20));
  dlro_tensor_release(out);
  /* A window of a window reaches as far as the memory, not as the window. */
  window = describe(NULL, i32, 1, window_shape, NULL), window_shape[0] = 1, window.byte_offset = 8;
  CHECK_OK(dlro_tensor_share(tensor, W, &window, &out));
  dlro_tensor_release(tensor);
  tensor = out;
  window_shape[0] = 18, window.byte_offset = 0;
  CHECK_OK(dlro_tensor_share(tensor, W, &window, &out));
  CHECK(is_address(out, numbers + 6) && int32_at(out, 17) == 23);
  dlro_tensor_release(out);
  dlro_tensor_release(tensor);
  CHECK(released == 3);
  checked("rule byte_offset: windows with offset, steps, backwards, of another dtype, 0-d, empty; data as NULL or address");
}

static void window_statuses(void) {
  int64_t shape[1] = {8}, s[1] = {8}, t[1] = {1}, negative[1] = {-1};
  DLTensor layout = describe(numbers + 4, i32, 1, shape, NULL), window;
  Tensor *tensor, *out;
  reset();
  tensor = lend(layout, 0, W);
#define WINDOW(change, status, text)                                                              \
  do {                                                                                            \
    window = describe(NULL, i32, 1, s, t);                                                        \
    s[0] = 8, t[0] = 1;                                                                           \
    change;                                                                                       \
    CHECK_REFUSED(out, dlro_tensor_share(tensor, R, &window, &out), status, text);                \
  } while (0)
  WINDOW(window.byte_offset = 4, DLRO_ERR_BOUNDS, "from byte 4 to byte 36 of a memory of 32 bytes");
  WINDOW(s[0] = 9, DLRO_ERR_BOUNDS, "from byte 0 to byte 36 of a memory of 32 bytes");
  WINDOW(t[0] = 2, DLRO_ERR_BOUNDS, "from byte 0 to byte 60");
  WINDOW(t[0] = -1, DLRO_ERR_BOUNDS, "from byte -28 to byte 4");
  WINDOW((t[0] = -1, window.byte_offset = 24), DLRO_ERR_BOUNDS, "from byte -4 to byte 28");
  WINDOW(window.data = numbers + 3, DLRO_ERR_BOUNDS, "from byte -4 to byte 28");
  WINDOW(window.data = numbers + 5, DLRO_ERR_BOUNDS, "from byte 4 to byte 36");
  WINDOW(window.dtype = dtype(kDLInt, 64, 1), DLRO_ERR_BOUNDS, "from byte 0 to byte 64");
  WINDOW(window.byte_offset = (uint64_t)-4, DLRO_ERR_BOUNDS, "leaves the address space");
  WINDOW(window.byte_offset = (uint64_t)1 << 63, DLRO_ERR_BOUNDS, "of a memory of 32 bytes");
  WINDOW(t[0] = INT64_MAX, DLRO_ERR_BOUNDS, "does not fit");
  WINDOW(window.ndim = -1, DLRO_ERR_BOUNDS, "ndim is -1");
  WINDOW(window.ndim = 0x7fffffff, DLRO_ERR_BOUNDS, "ndim is 2147483647");
  WINDOW(window.shape = negative, DLRO_ERR_BOUNDS, "shape[0] is -1");
  WINDOW(window.shape = NULL, DLRO_ERR_NULL, "shape is NULL with ndim 1");
  WINDOW(window.dtype = dtype(kDLFloat, 8, 1), DLRO_ERR_DTYPE, "has a code of its own");
  CHECK_REFUSED(out, dlro_tensor_share(NULL, R, NULL, &out), DLRO_ERR_NULL, "tensor is NULL");
  CHECK_STATUS(dlro_tensor_share(tensor, R, NULL, NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK_REFUSED(out, dlro_tensor_share(tensor, 3, NULL, &out), DLRO_ERR_ARGUMENT, "mutability is 3");
  CHECK_REFUSED(out, dlro_tensor_share(tensor, UINT32_MAX, NULL, &out), DLRO_ERR_ARGUMENT, "mutability is 4294967295");
  tensor->version.major = 2;
  CHECK_REFUSED(out, dlro_tensor_share(tensor, R, NULL, &out), DLRO_ERR_VERSION, "DLPack version 2.0");
  tensor->version.major = 1;
  CHECK(released == 0);
  dlro_tensor_release(tensor);
  CHECK(released == 1);

  tensor = foreign_tensor(layout, 0, 0, &released);
  CHECK_REFUSED(out, dlro_tensor_share(tensor, R, NULL, &out), DLRO_ERR_ARGUMENT, "import it with DLRO_IMPORT_ADOPT first");
  dlro_tensor_release(tensor);
  {
    /* Our deleter in somebody's struct makes it no tensor of ours. */
    Tensor *real = lend(layout, 0, W), fake = *real;
    CHECK_REFUSED(out, dlro_tensor_share(&fake, R, NULL, &out), DLRO_ERR_ARGUMENT, "not made by this library");
    CHECK(dlro_tensor_mutability(&fake) == W);
    dlro_tensor_release(real);
  }
  tensor = lend(on_device(layout, kDLOpenCL, 1), 0, W);
  window = describe(NULL, i32, 1, s, t), s[0] = 4, window.byte_offset = 16;
  CHECK_OK(dlro_tensor_share(tensor, R, &window, &out));
  CHECK(out->dl_tensor.data == numbers + 4 && out->dl_tensor.byte_offset == 16);
  CHECK(out->dl_tensor.device.device_type == kDLOpenCL && out->dl_tensor.device.device_id == 1);
  dlro_tensor_release(out);
  window.byte_offset = 20;
  CHECK_REFUSED(out, dlro_tensor_share(tensor, R, &window, &out), DLRO_ERR_BOUNDS, "from byte 20 to byte 36");
  window.byte_offset = 0, window.data = numbers + 5;
  CHECK_REFUSED(out, dlro_tensor_share(tensor, R, &window, &out), DLRO_ERR_BOUNDS, "another handle");
  dlro_tensor_release(tensor);
  checked("windows: every status, DLRO_ERR_BOUNDS on either side, handles");
}

static void orders(void) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  int order, kind, i;
  for (order = 0; order < 24; order++) {
    /* Every order of four tensors: the first, two shares of it, a share of a share. */
    const int a = order / 6, b = order / 2 % 3, c = order % 2;
    int left[4] = {0, 1, 2, 3}, pick[4];
    pick[0] = left[a];
    memmove(left + a, left + a + 1, sizeof(int) * (size_t)(3 - a));
    pick[1] = left[b];
    memmove(left + b, left + b + 1, sizeof(int) * (size_t)(2 - b));
    pick[2] = left[c];
    pick[3] = left[1 - c];
    for (kind = 0; kind < 4; kind++) {
      Tensor *tensors[4], *foreign;
      dlro_import_options adopt = DLRO_IMPORT_OPTIONS_INIT;
      adopt.flags = DLRO_IMPORT_ADOPT;
      reset();
      if (kind < 2) {
        tensors[0] = lend(layout, 0, kind ? I : W);
      } else if (kind == 2) {
        foreign = foreign_tensor(layout, 1, 0, &released);
        CHECK_OK(dlro_tensor_import(foreign, &adopt, &tensors[0]));
      } else {
        tensors[0] = own(4);
      }
      tensors[1] = share(tensors[0], kind == 1 ? I : W);
      tensors[2] = share(tensors[0], R);
      tensors[3] = share(tensors[1], R);
      for (i = 0; i < 4; i++) {
        const void *data = NULL;
        CHECK(released == 0);
        CHECK_OK(dlro_tensor_data(tensors[pick[i]], &data));
        CHECK(data == (kind == 3 ? tensors[pick[i]]->dl_tensor.data : numbers));
        dlro_tensor_release(tensors[pick[i]]);
      }
      CHECK(released == (kind == 3 ? 0 : 1));
    }
  }
  checked("case A5: tensors over one memory released in all 24 orders: the owner is let go once, with the last");
}

static void unread_copy(void) {
  /* Two read-only views of one owner, and a copy of one that is written. */
  int64_t shape[1] = {4};
  Tensor *owner = lend(describe(numbers, i32, 1, shape, NULL), 0, R), *first, *second, *copy;
  void *data;
  reset();
  first = share(owner, R);
  second = share(owner, R);
  CHECK_OK(dlro_tensor_copy(first, &copy));
  CHECK_OK(dlro_tensor_data_mut(copy, &data));
  memset(data, 0xFF, 16);
  CHECK(int32_at(second, 3) == 3 && int32_at(owner, 1) == 1);
  dlro_tensor_release(copy);
  dlro_tensor_release(owner);
  dlro_tensor_release(second);
  dlro_tensor_release(first);
  CHECK(released == 1);
  checked("cases A14, A15, A17: views are read-only; who writes, writes a copy");
}

/* Release elsewhere: on another thread, and in the destructor of a thread's key. */
static void *release_there(void *tensor) {
  dlro_tensor_release((Tensor *)tensor);
  return NULL;
}

static pthread_key_t key;
static int destructed;
static void destroy_key(void *tensor) {
  int64_t shape[1] = {4};
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  Tensor *out;
  /* Also what fails can be called while the thread is going. */
  CHECK_REFUSED(out, dlro_tensor_share(NULL, R, NULL, &out), DLRO_ERR_NULL, "tensor is NULL");
  CHECK_OK(dlro_tensor_export(&layout, 0, R, NULL, NULL, &out));
  dlro_tensor_release(out);
  dlro_tensor_release((Tensor *)tensor);
  destructed++;
}

static void *leave_in_key(void *tensor) {
  Tensor *out;
  CHECK_REFUSED(out, dlro_tensor_share(NULL, R, NULL, &out), DLRO_ERR_NULL, "tensor is NULL");
  CHECK(pthread_setspecific(key, share((Tensor *)tensor, R)) == 0);
  return NULL;
}

static void *make_there(void *out) {
  int64_t shape[1] = {4};
  *(Tensor **)out = lend(describe(numbers, i32, 1, shape, NULL), 0, W);
  return NULL;
}

static void other_threads(void) {
  pthread_t thread;
  Tensor *tensor = NULL;
  reset();
  CHECK(pthread_create(&thread, NULL, make_there, &tensor) == 0 && pthread_join(thread, NULL) == 0);
  dlro_tensor_release(share(tensor, W));
  CHECK(released == 0);
  CHECK(pthread_key_create(&key, destroy_key) == 0);
  CHECK(pthread_create(&thread, NULL, leave_in_key, tensor) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(destructed == 1 && released == 0);
  CHECK(pthread_create(&thread, NULL, release_there, tensor) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(released == 1);
  CHECK(pthread_key_delete(key) == 0);
  checked("case B6: made on one thread that is gone, released on another, and from a thread key's destructor");
}

static void forked(void) {
  int64_t shape[1] = {4};
  int *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Tensor *lent, *mine, *shared, *foreign;
  DLTensor layout = describe(numbers, i32, 1, shape, NULL);
  dlro_import_options adopt = DLRO_IMPORT_OPTIONS_INIT;
  void *data;
  int status = -1;
  pid_t child;
  CHECK(counter != MAP_FAILED);
  adopt.flags = DLRO_IMPORT_ADOPT;
  reset();
  lent = lend(layout, 0, W);
  CHECK_OK(dlro_tensor_import(foreign_tensor(layout, 0, 0, &released), &adopt, &foreign));
  mine = own(4);
  shared = share(mine, W);
  CHECK_OK(dlro_tensor_data_mut(mine, &data));
  memset(data, 0x11, 16);
  fflush(NULL);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bool good;
    memset(data, 0x22, 16);
    dlro_tensor_release(mine);
    good = dlro_tensor_freeze(shared) == DLRO_OK && int32_at(shared, 0) == 0x22222222;
    dlro_tensor_release(shared);
    dlro_tensor_release(lent);
    dlro_tensor_release(foreign);
    mine = own(8);
    dlro_tensor_release(mine);
    *counter = released;
    _exit(good && released == 2 ? 0 : 7);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(*counter == 2 && released == 0);
  CHECK(is_writable(mine) && is_writable(shared) && int32_at(mine, 0) == 0x11111111);
  CHECK_STATUS(dlro_tensor_freeze(mine), DLRO_ERR_BUSY, "alive; 1 are");
  dlro_tensor_release(mine);
  dlro_tensor_release(shared);
  dlro_tensor_release(lent);
  dlro_tensor_release(foreign);
  CHECK(released == 2 && munmap(counter, 4096) == 0);
  checked("rule fork: a child releases what it inherited, and the parent's stays as it was");
}

/* After main. A failure there must not call exit again. */
static Tensor *for_atexit, *for_destructor;
static int expected_later;
static void late(Tensor *tensor, const char *where) {
  Tensor *again = NULL;
  dlro_tensor_release(tensor);
  if (released != ++expected_later || dlro_tensor_share(NULL, R, NULL, &again) != DLRO_ERR_NULL || again != NULL) {
    fprintf(stderr, "release %s: released %d, expected %d\n", where, released, expected_later);
    _exit(1);
  }
}
static void at_exit(void) { late(for_atexit, "in atexit"); }
static void at_the_end(void) __attribute__((destructor));
static void at_the_end(void) {
  if (for_destructor != NULL) late(for_destructor, "in a destructor");
}

/* A flag that somebody cleared by hand in a tensor of ours gives no right back. */
static void cleared_by_hand(void) {
  static float elements[4];
  int64_t shape[1] = {4};
  DLTensor layout = {elements, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  struct DLManagedTensorVersioned *tensor, *out;
  DLManagedTensor *legacy;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  void *data;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  tensor->flags = 0;
  CHECK_STATUS(dlro_tensor_data_mut(tensor, &data), DLRO_ERR_READ_ONLY, "read-only");
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY);
  CHECK_STATUS(dlro_legacy_export(tensor, DLRO_LEGACY_REFUSE_READ_ONLY, &legacy), DLRO_ERR_READ_ONLY, "legacy");
  options.access = DLRO_ACCESS_WRITE;
  options.copy = DLRO_COPY_NEVER;
  CHECK_STATUS(dlro_tensor_import(tensor, &options, &out), DLRO_ERR_READ_ONLY, "write access");
  dlro_tensor_release(tensor);
  checked("rights never grow: a flag cleared by hand in a tensor of ours gives none back");
}

int main(void) {
  int64_t shape[1] = {4};
  i32 = dtype(kDLInt, 32, 1);
  wholes();
  rights();
  borrow_rule();
  freezing();
  windows();
  window_statuses();
  orders();
  unread_copy();
  other_threads();
  forked();
  reset();
  for_atexit = lend(describe(numbers, i32, 1, shape, NULL), 0, W);
  for_destructor = lend(describe(numbers, i32, 1, shape, NULL), 0, R);
  CHECK(atexit(at_exit) == 0);
  checked("case B6: what follows main, an atexit handler and a static destructor, releases too");
  cleared_by_hand();
  return 0;
}
