/* Chapter copy: elements of any layout into new memory, or over those of another tensor.

   Every copy is compared with one made here element by element, the gaps between the elements included. */
#include "foreign_legacy.h"
#include <sys/mman.h>
#include <unistd.h>

#define READ_ONLY_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define COPIED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)
#define PADDED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
#define UNKNOWN_FLAG ((uint64_t)1 << 40)

enum { MAX_NDIM = 8 };

static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state >> 33) % limit;
}

/* --- elements, as DLPack lays them out --- */

static unsigned pitch_of(DLDataType dtype, bool padded) {
  const unsigned bits = (unsigned)dtype.bits * dtype.lanes;
  return padded ? (bits + 7) / 8 * 8 : bits;
}

struct layout {
  int ndim;
  int64_t shape[MAX_NDIM], strides[MAX_NDIM];
};

static int64_t count_of(const struct layout *layout) {
  int64_t count = 1;
  int axis;
  for (axis = 0; axis < layout->ndim; axis++) count *= layout->shape[axis];
  return count;
}

/* `order` names the axes, the one with the narrowest stride first. */
static void stride_by(struct layout *layout, const int *order, const int64_t *gaps, unsigned backwards) {
  int64_t step = 1;
  int i;
  for (i = 0; i < layout->ndim; i++) {
    const int axis = order[i];
    step *= gaps == NULL ? 1 : gaps[axis];
    layout->strides[axis] = backwards >> axis & 1 ? -step : step;
    if (layout->shape[axis] > 1) step *= layout->shape[axis];
  }
}

static void stride_row_major(struct layout *layout) {
  int order[MAX_NDIM], i;
  for (i = 0; i < layout->ndim; i++) order[i] = layout->ndim - 1 - i;
  stride_by(layout, order, NULL, 0);
}

static void stride_column_major(struct layout *layout) {
  int order[MAX_NDIM], i;
  for (i = 0; i < layout->ndim; i++) order[i] = i;
  stride_by(layout, order, NULL, 0);
}

/* Bytes in front of the first element, and from it to the end of the last one. */
static void extent(const struct layout *layout, unsigned pitch, size_t *before, size_t *after) {
  int64_t low = 0, high = 0;
  int axis;
  *before = *after = 0;
  if (count_of(layout) == 0) return;
  for (axis = 0; axis < layout->ndim; axis++) {
    const int64_t reach = (layout->shape[axis] - 1) * layout->strides[axis];
    if (reach < 0) low += reach;
    else high += reach;
  }
  *before = (size_t)((-low * (int64_t)pitch + 7) / 8);
  *after = (size_t)(((high + 1) * (int64_t)pitch + 7) / 8);
}

static void copy_bit(const uint8_t *source, int64_t from, uint8_t *target, int64_t to) {
  const unsigned mask = 1u << (to & 7);
  if (source[from >> 3] >> (from & 7) & 1) target[to >> 3] = (uint8_t)(target[to >> 3] | mask);
  else target[to >> 3] = (uint8_t)(target[to >> 3] & ~mask);
}

static void copy_axis(const struct layout *from, const uint8_t *source, int64_t at_source, const struct layout *to,
                      uint8_t *target, int64_t at_target, unsigned pitch, int axis) {
  int64_t i;
  if (axis == from->ndim) {
    if (pitch % 8 == 0) {
      const int64_t size = pitch / 8;
      memcpy(target + at_target * size, source + at_source * size, (size_t)size);
    } else {
      for (i = 0; i < (int64_t)pitch; i++) {
        copy_bit(source, at_source * (int64_t)pitch + i, target, at_target * (int64_t)pitch + i);
      }
    }
    return;
  }
  if (axis == from->ndim - 1 && pitch % 8 == 0) { /* the same, quicker */
    const int64_t size = pitch / 8;
    for (i = 0; i < from->shape[axis]; i++) {
      const uint8_t *element = source + (at_source + i * from->strides[axis]) * size;
      uint8_t *place = target + (at_target + i * to->strides[axis]) * size;
      int64_t byte;
      for (byte = 0; byte < size; byte++) place[byte] = element[byte];
    }
    return;
  }
  for (i = 0; i < from->shape[axis]; i++) {
    copy_axis(from, source, at_source + i * from->strides[axis], to, target, at_target + i * to->strides[axis], pitch,
              axis + 1);
  }
}

/* What a copy is. The pointers are those of the first elements. */
static void reference_copy(const struct layout *from, const uint8_t *source, const struct layout *to, uint8_t *target,
                           unsigned pitch) {
  copy_axis(from, source, 0, to, target, 0, pitch, 0);
}

/* --- memory whose neighbours must not be touched --- */

enum { GUARDED = 1 << 22 }; /* bytes between two pages that cannot be touched */

static uint8_t *guarded[2];

static void make_guarded(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int i;
  for (i = 0; i < 2; i++) {
    uint8_t *start = (uint8_t *)mmap(NULL, GUARDED + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && mprotect(start + page, GUARDED, PROT_READ | PROT_WRITE) == 0);
    guarded[i] = start + page;
  }
}

struct memory {
  uint8_t *bytes, *to_free;
  size_t nbytes;
  int side;
};

/* `place`: 0 from malloc, exactly as long and at an odd address; 1 and 2 against the guard behind and in front. */
static struct memory a_memory(int side, size_t nbytes, int place) {
  struct memory memory = {NULL, NULL, nbytes, side};
  const size_t lead = below(8);
  size_t i;
  if (nbytes > GUARDED) place = 0;
  if (place == 0) {
    memory.to_free = (uint8_t *)malloc(nbytes + lead + 1);
    memory.bytes = (uint8_t *)realloc(memory.to_free, nbytes + lead > 0 ? nbytes + lead : 1);
    memory.to_free = memory.bytes;
    memory.bytes += lead;
  } else {
    memory.bytes = place == 1 ? guarded[side] + GUARDED - nbytes : guarded[side];
  }
  for (i = 0; i < nbytes; i++) memory.bytes[i] = (uint8_t)(i * 131 + (random_state >> (i % 48)));
  below(2);
  return memory;
}

/* Of guarded memory, the pages that are used. */
static void protect(const struct memory *memory, int protection) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), lead = (uintptr_t)memory->bytes % page;
  if (memory->to_free == NULL) CHECK(mprotect(memory->bytes - lead, memory->nbytes + lead, protection) == 0);
}

static uint8_t *duplicate(const uint8_t *bytes, size_t nbytes) {
  uint8_t *copied = (uint8_t *)malloc(nbytes + 1);
  memcpy(copied, bytes, nbytes);
  return copied;
}

static DLTensor describe(struct layout *layout, DLDataType dtype, struct memory *memory, size_t before, bool offset) {
  DLTensor tensor = host_tensor(memory->bytes + before, dtype, layout->ndim, layout->shape, layout->strides);
  if (offset) {
    tensor.data = memory->bytes;
    tensor.byte_offset = before;
  }
  if (count_of(layout) == 0) tensor.data = NULL;
  return tensor;
}

/* --- a case --- */

static void check_fresh(const struct DLManagedTensorVersioned *tensor, const struct layout *wanted, DLDataType dtype,
                        uint64_t flags) {
  const DLTensor *fresh = &tensor->dl_tensor;
  bool dense;
  int axis;
  CHECK_OK(dlro_tensor_validate(tensor));
  CHECK(tensor->flags == flags && fresh->ndim == wanted->ndim && memcmp(&fresh->dtype, &dtype, sizeof dtype) == 0);
  CHECK(fresh->device.device_type == kDLCPU && fresh->device.device_id == 0 && fresh->byte_offset == 0);
  for (axis = 0; axis < wanted->ndim; axis++) {
    CHECK(fresh->shape[axis] == wanted->shape[axis]);
    if (wanted->shape[axis] > 1 && count_of(wanted) > 0) CHECK(fresh->strides[axis] == wanted->strides[axis]);
  }
  if (count_of(wanted) == 0) CHECK(fresh->data == NULL);
  else CHECK(fresh->data != NULL && (uintptr_t)fresh->data % 256 == 0);
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_tensor_is_row_major(tensor, &dense));
  if (!dense) CHECK_OK(dlro_tensor_is_column_major(tensor, &dense));
  CHECK(dense);
}

/* The elements of a dense copy, and 0 in the bits behind the last one. */
static void check_dense(const struct DLManagedTensorVersioned *tensor, const struct layout *from, const uint8_t *first,
                        const struct layout *dense, unsigned pitch) {
  const size_t nbytes = (size_t)((count_of(from) * (int64_t)pitch + 7) / 8);
  uint8_t *expected = (uint8_t *)calloc(nbytes + 1, 1);
  uint64_t reported;
  reference_copy(from, first, dense, expected, pitch);
  CHECK_OK(dlro_tensor_nbytes(tensor, &reported));
  CHECK(reported == nbytes);
  CHECK(nbytes == 0 || memcmp(tensor->dl_tensor.data, expected, nbytes) == 0);
  free(expected);
}

/* Copies `from` into new memory, in both orders, and over a target laid out as `to`, which may be NULL. */
static void copy_case(struct layout *from, struct layout *to, DLDataType dtype, bool padded) {
  const unsigned pitch = pitch_of(dtype, padded);
  const uint64_t flags = padded ? PADDED_FLAG : 0;
  struct layout dense = *from;
  struct DLManagedTensorVersioned *source, *copied, *target;
  struct memory read, written;
  uint8_t *before_read, *expected;
  size_t before, after, to_before;
  int deleted, deleted_target;
  extent(from, pitch, &before, &after);
  read = a_memory(0, before + after, (int)below(3));
  before_read = duplicate(read.bytes, read.nbytes);
  protect(&read, PROT_READ);
  source = foreign_versioned(describe(from, dtype, &read, before, below(2) == 0), 1,
                             flags | (below(2) ? READ_ONLY_FLAG : 0), &deleted);

  stride_row_major(&dense);
  CHECK_OK(dlro_tensor_copy(source, &copied));
  check_fresh(copied, &dense, dtype, flags | COPIED_FLAG);
  check_dense(copied, from, read.bytes + before, &dense, pitch);
  dlro_tensor_release(copied);

  if (to != NULL) {
    extent(to, pitch, &to_before, &after);
    written = a_memory(1, to_before + after, (int)below(3));
    expected = duplicate(written.bytes, written.nbytes);
    if (written.nbytes > 0) reference_copy(from, read.bytes + before, to, expected + to_before, pitch);
    target = foreign_versioned(describe(to, dtype, &written, to_before, below(2) == 0), 1, flags, &deleted_target);
    CHECK_OK(dlro_tensor_copy_into(source, target));
    CHECK(memcmp(written.bytes, expected, written.nbytes) == 0); /* gaps and bits of other elements included */
    CHECK(deleted_target == 0);
    dlro_tensor_release(target);
    free(expected);
    free(written.to_free);
  }

  CHECK(deleted == 0);
  {
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    options.copy = DLRO_COPY_ALWAYS;
    options.layout = DLRO_LAYOUT_COLUMN_MAJOR;
    stride_column_major(&dense);
    CHECK_OK(dlro_tensor_import(source, &options, &copied));
    CHECK(deleted == 1);
    check_fresh(copied, &dense, dtype, flags | COPIED_FLAG);
    check_dense(copied, from, read.bytes + before, &dense, pitch);
    dlro_tensor_release(copied);
  }
  CHECK(memcmp(read.bytes, before_read, read.nbytes) == 0);
  protect(&read, PROT_READ | PROT_WRITE);
  free(before_read);
  free(read.to_free);
}

static const DLDataType types[] = {
    {kDLUInt, 8, 1},   {kDLInt, 16, 1},    {kDLFloat, 32, 1},    {kDLFloat, 64, 1},         {kDLFloat, 128, 1},
    {kDLBool, 8, 1},   {kDLComplex, 64, 1}, {kDLComplex, 128, 1}, {kDLBfloat, 16, 1},        {kDLFloat8_e4m3fn, 8, 1},
    {kDLFloat, 32, 4}, {kDLUInt, 8, 3},    {kDLInt, 16, 3},      {kDLUInt, 8, 5},           {kDLUInt, 8, 7},
    {kDLFloat, 32, 3}, {kDLFloat, 64, 3},  {kDLFloat, 32, 16},   {kDLUInt, 8, 33},          {kDLInt, 64, 9},
    {kDLInt, 4, 2},    {kDLFloat, 64, 2},  {kDLUInt, 16, 7},     {kDLFloat4_e2m1fn, 4, 16}, {kDLUInt, 8, 300},
};
static const DLDataType subbyte_types[] = {
    {kDLFloat4_e2m1fn, 4, 1}, {kDLFloat6_e2m3fn, 6, 1}, {kDLFloat6_e3m2fn, 6, 1}, {kDLInt, 4, 1},
    {kDLUInt, 2, 1},          {kDLUInt, 4, 3},          {kDLFloat6_e2m3fn, 6, 3}, {kDLInt, 2, 7},
};
enum { TYPES = sizeof types / sizeof types[0], SUBBYTE_TYPES = sizeof subbyte_types / sizeof subbyte_types[0] };

static const int orders_of_3[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

static struct layout of_shape(int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
  struct layout layout = {0, {0}, {0}};
  layout.ndim = ndim;
  layout.shape[0] = a;
  layout.shape[1] = b;
  layout.shape[2] = c;
  layout.shape[3] = d;
  return layout;
}

/* --- the layouts --- */

static void all_permutations(void) {
  struct layout from = of_shape(3, 2, 3, 4, 0), to = from;
  int t, p, q;
  unsigned signs;
  for (t = 0; t < TYPES + SUBBYTE_TYPES; t++) {
    const DLDataType dtype = t < TYPES ? types[t] : subbyte_types[t - TYPES];
    for (p = 0; p < 6; p++) {
      for (signs = 0; signs < 8; signs++) {
        const int64_t gaps[3] = {1 + below(2), 1 + below(3), 1 + below(2)};
        q = (int)below(6);
        stride_by(&from, orders_of_3[p], below(2) ? gaps : NULL, signs);
        stride_by(&to, orders_of_3[q], below(2) ? gaps : NULL, below(8));
        copy_case(&from, &to, dtype, false);
        if (t >= TYPES) copy_case(&from, &to, dtype, true);
      }
      for (q = 0; q < 6; q++) {
        stride_by(&from, orders_of_3[p], NULL, 0);
        stride_by(&to, orders_of_3[q], NULL, 0);
        copy_case(&from, &to, dtype, false);
      }
    }
  }
  checked("case D10: every permutation of (2,3,4), every direction, gaps, every item size, packed and padded");
}

static void small_shapes(void) {
  struct layout from, to;
  int t, n;
  for (t = 0; t < TYPES + SUBBYTE_TYPES; t++) {
    const DLDataType dtype = t < TYPES ? types[t] : subbyte_types[t - TYPES];
    const bool padded = t >= TYPES && below(2);
    from = to = of_shape(0, 0, 0, 0, 0);
    copy_case(&from, &to, dtype, padded);
    for (n = 0; n < 4; n++) { /* one dimension of 0 makes it empty, whatever the strides */
      from = of_shape(3, n == 0 ? 0 : 5, n == 1 ? 0 : 5, n == 2 || n == 3 ? 0 : 5, 0);
      from.strides[0] = -7;
      from.strides[2] = INT64_MAX;
      to = from;
      copy_case(&from, &to, dtype, padded);
    }
    from = of_shape(4, 1, 3, 1, 1); /* strides of dimensions of 1 mean nothing */
    from.strides[0] = INT64_MIN;
    from.strides[1] = 2;
    from.strides[2] = 77;
    to = from;
    to.strides[1] = -1;
    copy_case(&from, &to, dtype, padded);
    for (n = 1; n < 70; n += 1 + (int)below(3)) {
      from = to = of_shape(1, n, 0, 0, 0);
      from.strides[0] = (int64_t)below(7) - 3; /* 0: every element the same */
      to.strides[0] = below(2) ? 1 + (int64_t)below(3) : -1 - (int64_t)below(3);
      copy_case(&from, &to, dtype, padded);
    }
  }
  checked("0-d, empty, dimensions of 1, and one dimension of every length up to 70 with strides -3 to 3");
}

static struct layout random_layout(struct layout shape, bool broadcast) {
  int order[MAX_NDIM] = {0}, i;
  int64_t gaps[MAX_NDIM] = {1};
  for (i = 0; i < shape.ndim; i++) {
    const int other = (int)below((uint32_t)i + 1);
    order[i] = order[other];
    order[other] = i;
    gaps[i] = below(3) == 0 ? 2 + below(2) : 1;
  }
  stride_by(&shape, order, gaps, below(256));
  if (broadcast) {
    for (i = 0; i < shape.ndim; i++) {
      if (below(3) == 0) shape.strides[i] = below(2) ? 0 : (int64_t)below(9) - 4;
    }
  }
  return shape;
}

static void random_layouts(void) {
  int i, axis;
  for (i = 0; i < 1500; i++) {
    const bool whole = below(3) != 0;
    const DLDataType dtype = whole ? types[below(TYPES)] : subbyte_types[below(SUBBYTE_TYPES)];
    struct layout shape = of_shape((int)below(6), 0, 0, 0, 0), from, to;
    for (axis = 0; axis < shape.ndim; axis++) shape.shape[axis] = below(12) == 0 ? 0 : 1 + below(4);
    from = random_layout(shape, below(3) == 0);
    to = random_layout(shape, false);
    copy_case(&from, &to, dtype, !whole && below(2));
  }
  checked("case D14: random layouts up to 5 dimensions, broadcast and self-overlapping sources");
}

/* Valgrind preloads its own malloc. */
static bool under_valgrind(void) {
  const char *preloaded = getenv("LD_PRELOAD");
  return preloaded != NULL && strstr(preloaded, "vgpreload") != NULL;
}

static void large_shapes(void) {
  const int64_t times = under_valgrind() ? 1 : 9; /* valgrind would take minutes */
  static const int chosen[5] = {0, 1, 2, 3, 15}; /* 1, 2, 4, 8 and 12 bytes */
  int t, p;
  for (t = 0; t < 5; t++) {
    const DLDataType dtype = types[chosen[t]];
    static const int transposed[2] = {0, 1}, fortran[4] = {0, 1, 2, 3}, mixed[4] = {2, 0, 3, 1};
    struct layout from = of_shape(2, 131 * (times > 1 ? 3 : 1), 67 * (times > 1 ? 3 : 1), 0, 0), to = from;
    stride_by(&from, transposed, NULL, below(4));
    stride_row_major(&to);
    copy_case(&from, &to, dtype, false);
    copy_case(&to, &from, dtype, false);
    from = to = of_shape(3, 19, 33, 7 * times, 0);
    for (p = 0; p < 6; p++) {
      stride_by(&from, orders_of_3[p], NULL, below(4) == 0 ? below(8) : 0);
      stride_by(&to, orders_of_3[below(6)], NULL, 0);
      copy_case(&from, p % 2 ? &to : NULL, dtype, false);
    }
    from = of_shape(4, 9, 8 * times, 16, 10);
    stride_by(&from, fortran, NULL, 0);
    copy_case(&from, NULL, dtype, false);
    stride_by(&from, mixed, NULL, 5);
    copy_case(&from, NULL, dtype, false);
    from = of_shape(1, 9001 * times, 0, 0, 0);
    from.strides[0] = -1;
    copy_case(&from, NULL, dtype, false);
    from = to = of_shape(2, 3, 3001 * times, 0, 0); /* interleaved channels */
    stride_by(&from, transposed, NULL, 0);
    stride_row_major(&to);
    copy_case(&from, &to, dtype, false);
    copy_case(&to, &from, dtype, false);
    from = to = of_shape(1, 20000 * times, 0, 0, 0); /* contiguous, unaligned */
    stride_row_major(&from);
    stride_row_major(&to);
    copy_case(&from, &to, dtype, false);
  }
  {
    struct layout from = of_shape(2, 131, 77, 0, 0);
    stride_column_major(&from);
    copy_case(&from, NULL, subbyte_types[0], false);
    copy_case(&from, NULL, subbyte_types[1], false);
  }
  checked("larger than tiles and caches: transposed, permuted, reversed, interleaved, contiguous");
}

/* --- the cases as reported --- */

static struct DLManagedTensorVersioned *copy_of(DLTensor layout) {
  struct DLManagedTensorVersioned *copied;
  int deleted;
  struct DLManagedTensorVersioned *source = foreign_versioned(layout, 0, 0, &deleted);
  CHECK_OK(dlro_tensor_copy(source, &copied));
  CHECK(deleted == 0);
  dlro_tensor_release(source);
  CHECK(deleted == 1);
  return copied;
}

static void expect_int64(DLTensor layout, const int64_t *expected, size_t count) {
  struct DLManagedTensorVersioned *copied = copy_of(layout);
  CHECK(memcmp(address_of(copied), expected, count * sizeof *expected) == 0);
  dlro_tensor_release(copied);
}

static void reported_layouts(void) {
  const DLDataType int64 = {kDLInt, 64, 1}, int32 = {kDLInt, 32, 1};
  int64_t base[12], i;
  for (i = 0; i < 12; i++) base[i] = i;
  {
    const int64_t evens[5] = {0, 2, 4, 6, 8}, ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t rows[8] = {0, 1, 2, 3, 8, 9, 10, 11};
    int64_t five[1] = {5}, two[1] = {2}, ten[1] = {10}, zero[1] = {0}, two_four[2] = {2, 4}, every_other[2] = {2, 3};
    int64_t fortran[12];
    DLTensor layout = host_tensor(base, int64, 1, five, two);
    expect_int64(layout, evens, 5);
    layout = host_tensor(base + 1, int64, 1, ten, zero);
    expect_int64(layout, ones, 10);
    layout.data = base;
    layout.byte_offset = 8;
    expect_int64(layout, ones, 10);
    for (i = 0; i < 12; i++) fortran[i % 4 * 3 + i / 4] = i; /* (3,4), column-major */
    layout = host_tensor(fortran, int64, 2, two_four, every_other);
    expect_int64(layout, rows, 8);
  }
  checked("case D9: arange(10)[::2], stride 0 at element 1, F-order rows ::2");
  {
    int32_t values[4] = {0, 1, 2, 3};
    const int32_t transposed[4] = {0, 2, 1, 3};
    int64_t two_two[2] = {2, 2}, strides[2] = {1, 2};
    struct DLManagedTensorVersioned *copied = copy_of(host_tensor(values, int32, 2, two_two, strides));
    CHECK(memcmp(address_of(copied), transposed, sizeof transposed) == 0);
    CHECK(((const int32_t *)address_of(copied))[0 * 2 + 1] == 2);
    CHECK(copied->dl_tensor.strides[0] == 2 && copied->dl_tensor.strides[1] == 1);
    dlro_tensor_release(copied);
  }
  checked("case D10: [[0,1],[2,3]].T keeps its logical order");
  {
    int64_t ten[1] = {10}, minus[1] = {-1};
    const int64_t down[10] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    DLTensor layout = host_tensor(base, int64, 1, ten, minus);
    layout.byte_offset = 9 * sizeof(int64_t);
    expect_int64(layout, down, 10);
  }
  checked("cases D6, D7: a reversed array is copied forwards");
  {
    uint8_t bytes[5] = {0, 1, 2, 255, 254};
    const DLDataType boolean = {kDLBool, 8, 1};
    int64_t five[1] = {5};
    struct DLManagedTensorVersioned *copied = copy_of(host_tensor(bytes, boolean, 1, five, NULL));
    CHECK(memcmp(address_of(copied), bytes, 5) == 0);
    dlro_tensor_release(copied);
  }
  checked("case F1: the bytes of bools are copied as they are");
  {
    const DLDataType float4 = {kDLFloat4_e2m1fn, 4, 1}, float6 = {kDLFloat6_e2m3fn, 6, 1};
    uint8_t bytes[3] = {0x21, 0xf3, 0xff};
    int64_t three[1] = {3}, four[1] = {4};
    struct DLManagedTensorVersioned *copied = copy_of(host_tensor(bytes, float4, 1, three, NULL));
    const uint8_t *first = (const uint8_t *)address_of(copied);
    uint64_t nbytes;
    CHECK_OK(dlro_tensor_nbytes(copied, &nbytes));
    CHECK(nbytes == 2 && first[0] == 0x21 && first[1] == 0x03); /* what was behind the third stays behind */
    CHECK(copied->version.minor == 1);
    dlro_tensor_release(copied);
    bytes[0] = 0x81, bytes[1] = 0x30, bytes[2] = 0x10; /* 1, 2, 3, 4 in six bits each */
    copied = copy_of(host_tensor(bytes, float6, 1, four, NULL));
    CHECK(memcmp(address_of(copied), bytes, 3) == 0);
    dlro_tensor_release(copied);
  }
  checked("case F5: float4 and float6 stay packed");
}

/* --- source and target over the same memory --- */

/* Both are windows on one buffer of `nbytes`; `from_at` and `to_at` are the bytes where their first elements lie. */
static void overlap_case(struct layout *from, size_t from_at, struct layout *to, size_t to_at, DLDataType dtype,
                         size_t nbytes) {
  const unsigned pitch = pitch_of(dtype, false);
  struct memory memory = a_memory(1, nbytes, (int)below(3));
  uint8_t *before = duplicate(memory.bytes, nbytes), *expected = duplicate(memory.bytes, nbytes);
  int deleted_source, deleted_target;
  struct DLManagedTensorVersioned *source = foreign_versioned(
      host_tensor(memory.bytes + from_at, dtype, from->ndim, from->shape, from->strides), 1, READ_ONLY_FLAG,
      &deleted_source);
  struct DLManagedTensorVersioned *target = foreign_versioned(
      host_tensor(memory.bytes + to_at, dtype, to->ndim, to->shape, to->strides), 1, 0, &deleted_target);
  reference_copy(from, before + from_at, to, expected + to_at, pitch);
  CHECK_OK(dlro_tensor_copy_into(source, target));
  CHECK(memcmp(memory.bytes, expected, nbytes) == 0);
  dlro_tensor_release(source);
  dlro_tensor_release(target);
  CHECK(deleted_source == 1 && deleted_target == 1);
  free(before);
  free(expected);
  free(memory.to_free);
}

static void overlapping(void) {
  int t, i, axis;
  for (t = 0; t < TYPES; t++) {
    const DLDataType dtype = types[t];
    const size_t size = pitch_of(dtype, false) / 8;
    struct layout from = of_shape(1, 40, 0, 0, 0), to = from;
    from.strides[0] = to.strides[0] = 1;
    overlap_case(&from, 0, &to, size, dtype, 41 * size); /* as memmove, both ways */
    overlap_case(&from, size, &to, 0, dtype, 41 * size);
    overlap_case(&from, 0, &to, 1, dtype, 41 * size); /* by less than an element */
    overlap_case(&from, 0, &to, 0, dtype, 40 * size); /* itself */
    from.strides[0] = -1;
    overlap_case(&from, 39 * size, &to, 0, dtype, 40 * size); /* reversed in place */
    from.strides[0] = 2;
    to.strides[0] = 2;
    overlap_case(&from, 0, &to, size, dtype, 80 * size); /* interleaved: the ranges cross, no element does */
    from.strides[0] = 0;
    to.strides[0] = 1;
    overlap_case(&from, 20 * size, &to, 0, dtype, 40 * size); /* one element over all, itself included */
    from = to = of_shape(2, 9, 9, 0, 0);
    stride_row_major(&to);
    stride_column_major(&from);
    overlap_case(&from, 0, &to, 0, dtype, 81 * size); /* transposed in place */
    overlap_case(&from, 9 * size, &to, 0, dtype, 90 * size);
  }
  for (i = 0; i < 400; i++) {
    const DLDataType dtype = below(2) ? types[below(TYPES)] : subbyte_types[below(SUBBYTE_TYPES)];
    struct layout shape = of_shape(1 + (int)below(4), 0, 0, 0, 0), from, to;
    size_t before, after, to_before, to_after, lead = below(5), from_at, to_at;
    for (axis = 0; axis < shape.ndim; axis++) shape.shape[axis] = 1 + below(4);
    from = random_layout(shape, below(3) == 0);
    to = random_layout(shape, false);
    extent(&from, pitch_of(dtype, false), &before, &after);
    extent(&to, pitch_of(dtype, false), &to_before, &to_after);
    from_at = (before > to_before ? before : to_before) + lead;
    to_at = from_at - below((uint32_t)lead + 1);
    overlap_case(&from, from_at, &to, to_at, dtype, from_at + (after > to_after ? after : to_after));
  }
  checked("source and target share memory: as if the source had been copied away first");

  {
    /* Two windows of one tensor of ours, which knows that they share. */
    int64_t shape[1] = {8}, part[1] = {7};
    DLTensor prototype = host_tensor(NULL, UINT8, 1, shape, NULL), window = prototype;
    const uint8_t shifted[8] = {0, 0, 1, 2, 3, 4, 5, 6};
    struct DLManagedTensorVersioned *whole, *low, *high;
    uint8_t *bytes;
    int i8;
    CHECK_OK(dlro_tensor_new(&prototype, &whole));
    CHECK_OK(dlro_tensor_data_mut(whole, (void **)&bytes));
    for (i8 = 0; i8 < 8; i8++) bytes[i8] = (uint8_t)i8;
    window.shape = part;
    CHECK_OK(dlro_tensor_share(whole, DLRO_MUTABILITY_READ_ONLY, &window, &low));
    window.byte_offset = 1;
    CHECK_OK(dlro_tensor_share(whole, DLRO_MUTABILITY_WRITABLE, &window, &high));
    CHECK_OK(dlro_tensor_copy_into(low, high));
    CHECK(memcmp(bytes, shifted, 8) == 0);
    CHECK_STATUS(dlro_tensor_copy_into(high, low), DLRO_ERR_READ_ONLY, "read-only");
    CHECK(memcmp(bytes, shifted, 8) == 0);
    dlro_tensor_release(whole);
    dlro_tensor_release(low);
    dlro_tensor_release(high);
  }
  checked("two windows of one tensor are copied over each other, and only where one may write");
}

/* --- what is refused --- */

static uint8_t refused_source[96], refused_target[96];

/* One failing copy_into: nothing written, nothing ended. */
static void refuse_into(DLTensor from, uint64_t from_flags, DLTensor to, uint64_t to_flags, int32_t expected,
                        const char *text) {
  int deleted_source, deleted_target;
  struct DLManagedTensorVersioned *source, *target;
  int i;
  for (i = 0; i < 96; i++) refused_source[i] = (uint8_t)i, refused_target[i] = 0x77;
  source = foreign_versioned(from, 1, from_flags, &deleted_source);
  target = foreign_versioned(to, 1, to_flags, &deleted_target);
  CHECK_STATUS(dlro_tensor_copy_into(source, target), expected, text);
  for (i = 0; i < 96; i++) CHECK(refused_source[i] == i && refused_target[i] == 0x77);
  CHECK(deleted_source == 0 && deleted_target == 0);
  dlro_tensor_release(source);
  dlro_tensor_release(target);
  CHECK(deleted_source == 1 && deleted_target == 1);
}

/* One failing copy, and the same tensor refused on either side of copy_into. */
static void refuse_everywhere(DLTensor layout, int32_t expected, const char *text) {
  int64_t shape[2] = {2, 4};
  const DLTensor fine_source = host_tensor(refused_source, FLOAT32, 2, shape, NULL);
  const DLTensor fine_target = host_tensor(refused_target, FLOAT32, 2, shape, NULL);
  struct DLManagedTensorVersioned *copied = STALE(struct DLManagedTensorVersioned), *source;
  int deleted;
  source = foreign_versioned(layout, 1, 0, &deleted);
  CHECK_STATUS(dlro_tensor_copy(source, &copied), expected, text);
  CHECK(copied == NULL && deleted == 0);
  dlro_tensor_release(source);
  CHECK(deleted == 1);
  refuse_into(layout, 0, fine_target, 0, expected, text);
  refuse_into(fine_source, 0, layout, 0, expected, text);
}

static void refusals(void) {
  const DLDataType uint32 = {kDLUInt, 32, 1}, vector = {kDLFloat, 32, 4}, nonsense = {kDLFloat, 8, 1};
  const DLDataType float4 = {kDLFloat4_e2m1fn, 4, 1}, opaque = {kDLOpaqueHandle, 64, 1};
  int64_t shape[3] = {2, 4, 1}, other[2] = {4, 2}, broadcast[2] = {0, 1}, negative[2] = {2, -4};
  int64_t huge[2] = {INT64_MAX, 2}, cross_shape[3] = {2, 2, 2}, cross[3] = {3, 2, 1};
  const DLTensor from = host_tensor(refused_source, FLOAT32, 2, shape, NULL);
  const DLTensor to = host_tensor(refused_target, FLOAT32, 2, shape, NULL);
  struct DLManagedTensorVersioned *copied = STALE(struct DLManagedTensorVersioned), *tensor;
  DLTensor odd;
  int deleted;
  refuse_into(from, 0, to, READ_ONLY_FLAG, DLRO_ERR_READ_ONLY, "the tensor is read-only (flags 0x1)");
  refuse_into(from, 0, to, READ_ONLY_FLAG | UNKNOWN_FLAG, DLRO_ERR_READ_ONLY, "read-only");
  odd = to;
  odd.strides = broadcast;
  refuse_into(from, 0, odd, 0, DLRO_ERR_LAYOUT, "share memory");
  refuse_into(host_tensor(refused_source, FLOAT32, 3, cross_shape, NULL), 0,
              host_tensor(refused_target, FLOAT32, 3, cross_shape, cross), 0, DLRO_ERR_LAYOUT, "share memory");
  odd = to;
  odd.shape = other;
  refuse_into(from, 0, odd, 0, DLRO_ERR_LAYOUT, "shape[0] is 2 in the source and 4 in the target");
  odd.shape = shape;
  odd.ndim = 3;
  refuse_into(from, 0, odd, 0, DLRO_ERR_LAYOUT, "2 dimensions and the target 3");
  odd = to;
  odd.dtype = uint32;
  refuse_into(from, 0, odd, 0, DLRO_ERR_DTYPE, "(code 2, bits 32, lanes 1) and the target (code 1, bits 32, lanes 1)");
  odd.dtype = vector;
  odd.shape = other;
  odd.ndim = 1;
  refuse_into(host_tensor(refused_source, FLOAT32, 1, other, NULL), 0, odd, 0, DLRO_ERR_DTYPE, "lanes 4");
  refuse_into(host_tensor(refused_source, float4, 2, shape, NULL), 0,
              host_tensor(refused_target, float4, 2, shape, NULL), PADDED_FLAG, DLRO_ERR_DTYPE, "pads");
  refuse_into(host_tensor(refused_source, float4, 2, shape, NULL), PADDED_FLAG,
              host_tensor(refused_target, float4, 2, shape, NULL), 0, DLRO_ERR_DTYPE, "pads");
  checked("copy_into refuses a target that must not or cannot be written, and writes nothing");

  odd = from;
  odd.device.device_type = kDLCUDA;
  odd.device.device_id = 3;
  refuse_everywhere(odd, DLRO_ERR_DEVICE, "(type 2, id 3)");
  odd.device.device_type = kDLCUDAManaged;
  refuse_everywhere(odd, DLRO_ERR_DEVICE, "(type 13, id 3)");
  odd.device.device_type = kDLMetal;
  refuse_everywhere(odd, DLRO_ERR_DEVICE, "(type 8, id 3)");
  odd.device.device_type = (DLDeviceType)1000;
  refuse_everywhere(odd, DLRO_ERR_DEVICE, "(type 1000, id 3)");
  odd = from;
  odd.dtype = nonsense;
  refuse_everywhere(odd, DLRO_ERR_DTYPE, "(code 2, bits 8, lanes 1)");
  odd.dtype = opaque;
  refuse_everywhere(odd, DLRO_ERR_DTYPE, "opaque handle");
  odd = from;
  odd.shape = negative;
  refuse_everywhere(odd, DLRO_ERR_BOUNDS, "shape[1] is -4");
  odd.shape = huge;
  refuse_everywhere(odd, DLRO_ERR_BOUNDS, "does not fit");
  odd = from;
  odd.ndim = -1;
  refuse_everywhere(odd, DLRO_ERR_BOUNDS, "ndim is -1");
  odd = from;
  odd.shape = NULL;
  refuse_everywhere(odd, DLRO_ERR_NULL, "shape is NULL");
  odd = from;
  odd.data = NULL;
  refuse_everywhere(odd, DLRO_ERR_NULL, "data is NULL");
  odd = from;
  odd.byte_offset = UINT64_MAX - 8;
  refuse_everywhere(odd, DLRO_ERR_BOUNDS, "leaves the address space");
  checked("cases G2, J2: devices and descriptors that cannot be copied are refused on both sides");

  CHECK_STATUS(dlro_tensor_copy(NULL, &copied), DLRO_ERR_NULL, "tensor is NULL");
  CHECK(copied == NULL);
  tensor = foreign_versioned(to, 0, 0, &deleted);
  CHECK_STATUS(dlro_tensor_copy(tensor, NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK_STATUS(dlro_tensor_copy_into(NULL, tensor), DLRO_ERR_NULL, "source is NULL");
  CHECK_STATUS(dlro_tensor_copy_into(tensor, NULL), DLRO_ERR_NULL, "target is NULL");
  CHECK(deleted == 0);
  {
    int deleted_2;
    struct DLManagedTensorVersioned *version_2 = foreign_of_version_2(&deleted_2);
    copied = STALE(struct DLManagedTensorVersioned);
    CHECK_STATUS(dlro_tensor_copy(version_2, &copied), DLRO_ERR_VERSION, "version 2.0");
    CHECK(copied == NULL);
    CHECK_STATUS(dlro_tensor_copy_into(version_2, tensor), DLRO_ERR_VERSION, "version 2.0");
    CHECK_STATUS(dlro_tensor_copy_into(tensor, version_2), DLRO_ERR_VERSION, "version 2.0");
    dlro_tensor_release(version_2);
    CHECK(deleted_2 == 1);
  }
  dlro_tensor_release(tensor);
  CHECK(deleted == 1);
  {
    /* A tensor of ours that is immutable. */
    int64_t eight[1] = {8};
    const DLTensor prototype = host_tensor(NULL, UINT8, 1, eight, NULL);
    struct DLManagedTensorVersioned *frozen, *other_tensor;
    CHECK_OK(dlro_tensor_new(&prototype, &frozen));
    CHECK_OK(dlro_tensor_new(&prototype, &other_tensor));
    CHECK_OK(dlro_tensor_freeze(frozen));
    CHECK_STATUS(dlro_tensor_copy_into(other_tensor, frozen), DLRO_ERR_READ_ONLY, "read-only");
    CHECK_OK(dlro_tensor_copy_into(frozen, other_tensor));
    dlro_tensor_release(frozen);
    dlro_tensor_release(other_tensor);
  }
  checked("NULL, another major version, and an immutable target are refused");
}

/* --- what the copy says of itself --- */

static void flags_of_copies(void) {
  static const uint64_t sent[6] = {0, READ_ONLY_FLAG, COPIED_FLAG, UNKNOWN_FLAG, READ_ONLY_FLAG | UNKNOWN_FLAG, 7};
  int64_t shape[2] = {2, 4}, minus[2] = {-4, 1};
  float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  struct DLManagedTensorVersioned *source, *copied, *shared;
  DLTensor layout = host_tensor(values, FLOAT32, 2, shape, NULL);
  int deleted, i;
  for (i = 0; i < 6; i++) {
    source = foreign_versioned(layout, 9, sent[i], &deleted);
    CHECK_OK(dlro_tensor_copy(source, &copied));
    CHECK(copied->flags == ((sent[i] & ~READ_ONLY_FLAG) | COPIED_FLAG) && source->flags == sent[i]);
    CHECK(copied->version.major == 1 && copied->version.minor == (sent[i] & UNKNOWN_FLAG ? 9 : sent[i] == 7 ? 1 : 0));
    CHECK(copied->dl_tensor.strides[0] == 4 && copied->dl_tensor.strides[1] == 1);
    CHECK(dlro_tensor_mutability(copied) == DLRO_MUTABILITY_WRITABLE);
    CHECK_OK(dlro_tensor_share(copied, DLRO_MUTABILITY_READ_ONLY, NULL, &shared)); /* no sole owner any more */
    CHECK(!(copied->flags & COPIED_FLAG) && !(shared->flags & COPIED_FLAG));
    dlro_tensor_release(shared);
    CHECK_OK(dlro_tensor_freeze(copied)); /* nobody else has it, so it can be promised never to change */
    CHECK(dlro_tensor_mutability(copied) == DLRO_MUTABILITY_IMMUTABLE);
    dlro_tensor_release(copied);
    CHECK(deleted == 0);
    dlro_tensor_release(source);
    CHECK(deleted == 1);
  }
  /* Host memory of other devices becomes the CPU's. */
  layout.device.device_type = kDLCUDAHost;
  layout.strides = minus;
  layout.byte_offset = 16;
  copied = copy_of(layout);
  CHECK(copied->dl_tensor.device.device_type == kDLCPU && ((const float *)address_of(copied))[0] == 4);
  dlro_tensor_release(copied);
  layout.device.device_type = kDLROCMHost;
  copied = copy_of(layout);
  CHECK(copied->dl_tensor.device.device_type == kDLCPU && ((const float *)address_of(copied))[7] == 3);
  dlro_tensor_release(copied);
  checked("a copy is writable, IS_COPIED, dense, on the CPU, keeps unknown flags, and is solely owned");
}

static uint64_t checksum(const uint8_t *bytes, size_t nbytes) {
  uint64_t sum = 14695981039346656037u;
  size_t i;
  for (i = 0; i < nbytes; i++) sum = (sum ^ bytes[i]) * 1099511628211u;
  return sum;
}

static void reported_rights(void) {
  enum { MEGABYTE = 1 << 20 };
  static uint8_t frozen[MEGABYTE];
  const uint64_t sum = (memset(frozen, 0x5a, MEGABYTE), checksum(frozen, MEGABYTE));
  int64_t shape[1] = {MEGABYTE};
  DLTensor layout = host_tensor(frozen, UINT8, 1, shape, NULL);
  struct DLManagedTensorVersioned *source, *tensor;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  void *writable;
  int released = 0, deleted;

  /* share */
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, count_release, &source));
  CHECK_OK(dlro_tensor_import(source, &options, &tensor));
  CHECK(address_of(tensor) == (const void *)frozen && released == 0);
  CHECK_STATUS(dlro_tensor_data_mut(tensor, &writable), DLRO_ERR_READ_ONLY, "read-only");
  /* refuse */
  options.access = DLRO_ACCESS_WRITE;
  options.copy = DLRO_COPY_NEVER;
  source = tensor;
  CHECK_STATUS(dlro_tensor_import(source, &options, &tensor), DLRO_ERR_READ_ONLY, "NEVER");
  CHECK(tensor == NULL && released == 0);
  /* copy */
  options.copy = DLRO_COPY_IF_NEEDED;
  CHECK_OK(dlro_tensor_import(source, &options, &tensor));
  CHECK(released == 1 && address_of(tensor) != (const void *)frozen);
  CHECK_OK(dlro_tensor_data_mut(tensor, &writable));
  CHECK(checksum((const uint8_t *)writable, MEGABYTE) == sum);
  memset(writable, 0, MEGABYTE);
  CHECK(checksum(frozen, MEGABYTE) == sum);
  dlro_tensor_release(tensor);
  checked("case A11: 1 MiB frozen: shared, copied, or refused; never written");

  {
    /* cases A4 and A14 */
    const DLDataType int32 = {kDLInt, 32, 1};
    int32_t values[4] = {0, 1, 2, 3};
    int64_t two_two[2] = {2, 2};
    struct DLManagedTensorVersioned *again;
    released = 0;
    layout = host_tensor(values, int32, 2, two_two, NULL);
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_IMMUTABLE, &released, count_release, &source));
    CHECK_OK(dlro_tensor_share(source, DLRO_MUTABILITY_IMMUTABLE, NULL, &again));
    CHECK_STATUS(dlro_tensor_data_mut(source, &writable), DLRO_ERR_READ_ONLY, "read-only");
    CHECK_OK(dlro_tensor_copy(source, &tensor));
    CHECK_OK(dlro_tensor_data_mut(tensor, &writable));
    *(int32_t *)writable = 99;
    CHECK(values[0] == 0 && ((const int32_t *)address_of(again))[0] == 0);
    dlro_tensor_release(source);
    CHECK(released == 0);
    dlro_tensor_release(again);
    CHECK(released == 1 && *(int32_t *)writable == 99);
    dlro_tensor_release(tensor);
  }
  checked("cases A4, A14: writing a copy changes neither the immutable source nor its other views");

  {
    /* case A18 */
    const DLDataType float64 = {kDLFloat, 64, 1};
    const double scalar = 2.5;
    uint64_t nbytes;
    DLManagedTensor *legacy;
    released = 0;
    layout = host_tensor((void *)(uintptr_t)&scalar, float64, 0, NULL, NULL);
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, count_release, &source));
    CHECK_OK(dlro_tensor_validate(source));
    CHECK_OK(dlro_tensor_nbytes(source, &nbytes));
    CHECK(nbytes == 8);
    CHECK_STATUS(dlro_legacy_export(source, DLRO_LEGACY_REFUSE_READ_ONLY, &legacy), DLRO_ERR_READ_ONLY, "read-only");
    CHECK_OK(dlro_tensor_copy(source, &tensor));
    CHECK(tensor->flags == COPIED_FLAG && tensor->dl_tensor.ndim == 0 && *(const double *)address_of(tensor) == 2.5);
    CHECK_OK(dlro_tensor_data_mut(tensor, &writable));
    dlro_tensor_release(tensor);
    dlro_tensor_release(source);
    CHECK(released == 1);
  }
  checked("case A18: a read-only scalar");

  {
    /* case H2 */
    static const uint32_t copies[3] = {DLRO_COPY_ALWAYS, DLRO_COPY_NEVER, DLRO_COPY_IF_NEEDED};
    static double room[40];
    const DLDataType float64 = {kDLFloat, 64, 1};
    double *aligned = (double *)(((uintptr_t)room + 63) / 64 * 64);
    int64_t four[1] = {4};
    const dlro_import_options defaults = DLRO_IMPORT_OPTIONS_INIT;
    int i;
    for (i = 0; i < 3; i++) {
      options = defaults;
      options.copy = copies[i];
      source = foreign_versioned(host_tensor(aligned, float64, 1, four, four), 0, 0, &deleted);
      source->dl_tensor.strides[0] = 1;
      CHECK_OK(dlro_tensor_import(source, &options, &tensor));
      CHECK((address_of(tensor) == (const void *)aligned) == (i > 0));
      CHECK(tensor->flags == (i == 0 ? COPIED_FLAG : 0) && deleted == (i == 0 ? 1 : 0));
      CHECK(i == 0 || tensor == source);
      dlro_tensor_release(tensor);
      CHECK(deleted == 1);
      /* the same where only a copy will do */
      options.alignment = 64;
      source = foreign_versioned(host_tensor(aligned + 1, float64, 1, four, NULL), 0, 0, &deleted);
      if (copies[i] == DLRO_COPY_NEVER) {
        CHECK_STATUS(dlro_tensor_import(source, &options, &tensor), DLRO_ERR_COPY_NEEDED, "an alignment of 64 bytes");
        CHECK(tensor == NULL && deleted == 0);
        dlro_tensor_release(source);
      } else {
        CHECK_OK(dlro_tensor_import(source, &options, &tensor));
        CHECK(deleted == 1 && tensor->flags == COPIED_FLAG && (uintptr_t)address_of(tensor) % 64 == 0);
        dlro_tensor_release(tensor);
      }
      CHECK(deleted == 1);
    }
    for (i = 8; i <= 30; i += 11) { /* alignments beyond what every copy has */
      options = defaults;
      options.copy = DLRO_COPY_ALWAYS;
      options.alignment = i == 30 ? 1u << 20 : 1u << i;
      source = foreign_versioned(host_tensor(aligned, float64, 1, four, NULL), 0, 0, &deleted);
      CHECK_OK(dlro_tensor_import(source, &options, &tensor));
      CHECK((uintptr_t)address_of(tensor) % options.alignment == 0);
      CHECK(memcmp(address_of(tensor), aligned, 4 * sizeof *aligned) == 0);
      dlro_tensor_release(tensor);
    }
  }
  checked("case H2: copy=True always copies, False never does, None only where it must");
}

static void read_only_pages(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const DLDataType float64 = {kDLFloat, 64, 1};
  double *values = (double *)mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int64_t shape[2] = {3, 4}, transposed[2] = {1, 3};
  DLTensor layout = host_tensor(values, float64, 2, shape, transposed);
  struct DLManagedTensorVersioned *source, *copied, *shared;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  const dlro_import_options defaults = DLRO_IMPORT_OPTIONS_INIT;
  DLManagedTensor *legacy;
  char line[256];
  void *writable;
  uint64_t number;
  int64_t low;
  size_t length;
  bool flag;
  int released = 0, i;
  CHECK(values != MAP_FAILED);
  for (i = 0; i < 12; i++) values[i] = i;
  CHECK(mprotect(values, page, PROT_READ) == 0);
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, count_release, &source));
  CHECK_OK(dlro_tensor_validate(source));
  CHECK_STATUS(dlro_tensor_data_mut(source, &writable), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_OK(dlro_tensor_nbytes(source, &number));
  CHECK_OK(dlro_tensor_span(source, &low, &number));
  CHECK_OK(dlro_tensor_is_overlapping(source, &flag));
  CHECK_OK(dlro_tensor_is_row_major(source, &flag));
  CHECK_OK(dlro_tensor_is_column_major(source, &flag));
  CHECK_OK(dlro_tensor_element_count(source, &number));
  CHECK_OK(dlro_tensor_describe(source, line, sizeof line, &length));
  CHECK_STATUS(dlro_tensor_freeze(source), DLRO_ERR_NOT_IMMUTABLE, "not immutable");
  CHECK_OK(dlro_tensor_share(source, DLRO_MUTABILITY_READ_ONLY, NULL, &shared));
  CHECK_STATUS(dlro_tensor_copy_into(source, shared), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_OK(dlro_tensor_copy(source, &copied));
  CHECK_OK(dlro_tensor_data_mut(copied, &writable));
  CHECK(((double *)writable)[1] == 3);
  *(double *)writable = 1;
  CHECK(values[0] == 0);
  CHECK_STATUS(dlro_tensor_copy_into(copied, source), DLRO_ERR_READ_ONLY, "read-only");
  dlro_tensor_release(copied);
  options.layout = DLRO_LAYOUT_ROW_MAJOR;
  CHECK_OK(dlro_tensor_import(shared, &options, &copied));
  dlro_tensor_release(copied);
  options = defaults;
  options.access = DLRO_ACCESS_WRITE;
  CHECK_OK(dlro_tensor_share(source, DLRO_MUTABILITY_READ_ONLY, NULL, &shared));
  CHECK_OK(dlro_tensor_import(shared, &options, &copied));
  CHECK(((const double *)address_of(copied))[11] == 11);
  dlro_tensor_release(copied);
  options.access = DLRO_ACCESS_IMMUTABLE;
  CHECK_OK(dlro_tensor_share(source, DLRO_MUTABILITY_READ_ONLY, NULL, &shared));
  CHECK_OK(dlro_tensor_import(shared, &options, &copied));
  dlro_tensor_release(copied);
  CHECK_OK(dlro_legacy_export(source, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
  CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_WRITABLE, NULL, &source));
  CHECK(released == 0);
  dlro_tensor_release(source);
  CHECK(released == 1);
  CHECK_OK(dlro_legacy_import(foreign_legacy(layout, &released), DLRO_MUTABILITY_WRITABLE, NULL, &source));
  dlro_tensor_release(source); /* case A22: vouched for wrongly, and still nothing of ours writes */
  CHECK(released == 1 && munmap(values, page) == 0);
  checked("cases A12, A22: nothing in the library writes memory that cannot be written");
}

static void two_mappings(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const int file = memfd_create("two-mappings", MFD_CLOEXEC);
  uint8_t *parent, *child;
  int64_t shape[1] = {64};
  DLTensor layout;
  struct DLManagedTensorVersioned *tensor, *copied;
  void *writable;
  uint64_t sum;
  CHECK(file >= 0 && ftruncate(file, (off_t)page) == 0);
  parent = (uint8_t *)mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  child = (uint8_t *)mmap(NULL, page, PROT_READ, MAP_SHARED, file, 0);
  CHECK(parent != MAP_FAILED && child != MAP_FAILED && close(file) == 0);
  memset(parent, 7, page);
  sum = checksum(parent, page);
  layout = host_tensor(child, UINT8, 1, shape, NULL);
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  CHECK_STATUS(dlro_tensor_data_mut(tensor, &writable), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_OK(dlro_tensor_copy(tensor, &copied));
  CHECK_OK(dlro_tensor_data_mut(copied, &writable));
  memset(writable, 9, 64);
  CHECK(checksum(parent, page) == sum);
  parent[0] = 8; /* the view follows the memory, the copy does not */
  CHECK(*(const uint8_t *)address_of(tensor) == 8 && *(uint8_t *)writable == 9);
  dlro_tensor_release(copied);
  dlro_tensor_release(tensor);
  CHECK(munmap(parent, page) == 0 && munmap(child, page) == 0);
  checked("case A19: shared memory mapped twice: the reader's copy is his own");
}

int main(void) {
  make_guarded();
  all_permutations();
  small_shapes();
  random_layouts();
  large_shapes();
  reported_layouts();
  overlapping();
  refusals();
  flags_of_copies();
  reported_rights();
  read_only_pages();
  two_mappings();
  return 0;
}
