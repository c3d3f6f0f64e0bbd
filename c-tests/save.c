/* Chapter files, saving: any layout comes back equal, a file is replaced whole or not at all, and every refusal. */
#include "files.h"
#include <signal.h>

/* A float32 tensor of our own whose elements are 0, 1, 2, ... in row-major order of `shape`. */
static struct DLManagedTensorVersioned *counting(int ndim, const int64_t *shape) {
  int64_t dimensions[8];
  DLTensor prototype = {NULL, {kDLCPU, 0}, 0, {kDLFloat, 32, 1}, NULL, NULL, 0};
  struct DLManagedTensorVersioned *tensor;
  void *data;
  int64_t i, count = 1;
  for (i = 0; i < ndim; i++) count *= dimensions[i] = shape[i];
  prototype.ndim = ndim;
  prototype.shape = dimensions;
  CHECK_OK(dlro_tensor_new(&prototype, &tensor));
  CHECK_OK(dlro_tensor_data_mut(tensor, &data));
  for (i = 0; i < count; i++) ((float *)data)[i] = (float)i;
  return tensor;
}

/* A view of other strides, from element `offset` on. Takes the tensor. */
static struct DLManagedTensorVersioned *view(struct DLManagedTensorVersioned *tensor, int ndim, int64_t *shape,
                                             int64_t *strides, int64_t offset) {
  DLTensor window = tensor->dl_tensor;
  struct DLManagedTensorVersioned *shared;
  window.ndim = ndim;
  window.shape = shape;
  window.strides = strides;
  window.byte_offset += (uint64_t)offset * 4;
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, &window, &shared));
  dlro_tensor_release(tensor);
  return shared;
}

/* Both have the same elements in the same logical order. */
static int equal(struct DLManagedTensorVersioned *a, struct DLManagedTensorVersioned *b) {
  struct DLManagedTensorVersioned *dense[2];
  const void *data[2] = {NULL, NULL};
  size_t size[2];
  int same, i;
  if (a->dl_tensor.ndim != b->dl_tensor.ndim) return 0;
  for (i = 0; i < a->dl_tensor.ndim; i++)
    if (a->dl_tensor.shape[i] != b->dl_tensor.shape[i]) return 0;
  CHECK_OK(dlro_tensor_copy(a, &dense[0]));
  CHECK_OK(dlro_tensor_copy(b, &dense[1]));
  for (i = 0; i < 2; i++) {
    int axis;
    size[i] = dense[i]->dl_tensor.dtype.bits / 8;
    for (axis = 0; axis < dense[i]->dl_tensor.ndim; axis++) size[i] *= (size_t)dense[i]->dl_tensor.shape[axis];
    CHECK_OK(dlro_tensor_data(dense[i], &data[i]));
  }
  same = size[0] == size[1] && (size[0] == 0 || memcmp(data[0], data[1], size[0]) == 0);
  dlro_tensor_release(dense[0]);
  dlro_tensor_release(dense[1]);
  return same;
}

/* Saves in both formats, reads both back, and releases the tensor. */
static void round_trip(struct DLManagedTensorVersioned *tensor, int column_major) {
  const char *const name = "t";
  const struct DLManagedTensorVersioned *const given = tensor;
  struct DLManagedTensorVersioned *back;
  dlro_archive *archive;
  unsigned char *bytes;
  CHECK_OK(dlro_npy_save("t.npy", tensor));
  CHECK_OK(dlro_npy_map("t.npy", DLRO_MAP_READ_ONLY, &back));
  CHECK(equal(tensor, back));
  dlro_tensor_release(back);
  read_file("t.npy", &bytes);
  CHECK(memcmp(bytes, "\x93NUMPY\x01\0", 8) == 0);
  CHECK((strstr((const char *)bytes + 10, "'fortran_order': True") != NULL) == column_major);
  free(bytes);
  CHECK_OK(dlro_safetensors_save("t.safetensors", 1, &name, &given, 0, NULL, NULL));
  CHECK_OK(dlro_safetensors_map("t.safetensors", DLRO_MAP_READ_ONLY, &archive));
  CHECK_OK(dlro_archive_tensor(archive, 0, &back));
  CHECK(equal(tensor, back));
  dlro_tensor_release(back);
  dlro_archive_release(archive);
  dlro_tensor_release(tensor);
}

static void layouts(void) {
  int64_t shape3[] = {3, 4, 5}, shape2[] = {4, 3}, long1[] = {700000}, wide[] = {600, 700}, empty[] = {3, 0, 2};
  int64_t transposed[] = {1, 4}, reversed[] = {-20, -5, -1}, broadcast[] = {0, 5, 1}, second[] = {2};
  int64_t half[] = {350000}, odd[] = {700, 600}, odd_strides[] = {1, 700}, deep[] = {5, 3, 4, 1}, rows[] = {300, 700};
  int64_t deep_strides[] = {1, 20, 5, -77}, row_strides[] = {1400, 1}, down[] = {-700, 1};
  const int before = open_descriptors();
  round_trip(counting(3, shape3), 0);
  round_trip(counting(0, NULL), 0);
  round_trip(counting(3, empty), 0);
  round_trip(view(counting(1, long1), 2, shape2, transposed, 7), 1);
  round_trip(view(counting(3, shape3), 3, shape3, reversed, 59), 0);
  round_trip(view(counting(3, shape3), 3, shape3, broadcast, 0), 0);
  round_trip(view(counting(3, shape3), 4, deep, deep_strides, 0), 0);
  round_trip(view(counting(1, long1), 1, half, second, 1), 0); /* above the buffer of 1 MiB from here on */
  round_trip(view(counting(2, wide), 2, odd, odd_strides, 0), 1);
  round_trip(view(counting(2, wide), 2, rows, row_strides, 0), 0);
  round_trip(view(counting(2, wide), 2, wide, down, 599 * 700), 0);
  CHECK(open_descriptors() == before);
  checked("tensors of every layout come back equal from both formats");
}

static void many(void) {
  const char *const names[] = {"b", "a", "\xce\x94\"\n", "empty", "scalar"};
  const char *const keys[] = {"format", "k"}, *const values[] = {"pt", "v\t"};
  const char expected[] =
      "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\\t\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[8,20]},"
      "\"empty\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[20,20]},"
      "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[20,24]},"
      "\"\xce\x94\\\"\\n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}";
  int64_t sizes[] = {3, 2, 1, 0};
  struct DLManagedTensorVersioned *tensors[5];
  const struct DLManagedTensorVersioned *given[5];
  unsigned char *bytes;
  size_t length, i;
  for (i = 0; i < 5; i++) given[i] = tensors[i] = counting(i < 4, &sizes[i % 4]);
  CHECK_OK(dlro_safetensors_save("many", 5, names, given, 2, keys, values));
  length = read_file("many", &bytes);
  CHECK(length == 8 + (sizeof expected + 6) / 8 * 8 + 28 && bytes[0] == (sizeof expected + 6) / 8 * 8 % 256);
  CHECK(memcmp(bytes + 8, expected, sizeof expected - 1) == 0);
  free(bytes);
  CHECK_OK(dlro_safetensors_save("none", 0, NULL, NULL, 0, NULL, NULL));
  length = read_file("none", &bytes);
  CHECK(length == 16 && memcmp(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
  free(bytes);
  for (i = 0; i < 5; i++) dlro_tensor_release(tensors[i]);
  checked("names, order, escapes, padding and metadata as the crate writes them; an archive of nothing");
}

static void packed(void) {
  int64_t shape[] = {2, 3}, strides[] = {1, 2}, three[] = {3};
  unsigned char bits[] = {0x21, 0x43, 0x65};
  DLTensor layout = {bits, {kDLCPU, 0}, 2, {kDLFloat4_e2m1fn, 4, 1}, shape, strides, 0};
  const char *const name = "t";
  struct DLManagedTensorVersioned *tensor, *back;
  const struct DLManagedTensorVersioned *given;
  dlro_archive *archive;
  const void *data;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  given = tensor;
  CHECK_OK(dlro_safetensors_save("packed", 1, &name, &given, 0, NULL, NULL));
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_safetensors_map("packed", DLRO_MAP_READ_ONLY, &archive));
  CHECK_OK(dlro_archive_tensor(archive, 0, &back));
  CHECK_OK(dlro_tensor_data(back, &data));
  CHECK(memcmp(data, "\x31\x25\x64", 3) == 0); /* 1 3 5 / 2 4 6 */
  dlro_tensor_release(back);
  dlro_archive_release(archive);

  layout.ndim = 1;
  layout.shape = three;
  layout.strides = NULL;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  given = tensor;
  CHECK_STATUS(dlro_safetensors_save("packed", 1, &name, &given, 0, NULL, NULL), DLRO_ERR_DTYPE,
               "packed: t: dtype (code 17, bits 4, lanes 1) ends within a byte");
  dlro_tensor_release(tensor);
  CHECK_OK(dlro_tensor_export(&layout, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLRO_MUTABILITY_READ_ONLY, NULL,
                              NULL, &tensor));
  given = tensor;
  CHECK_STATUS(dlro_safetensors_save("packed", 1, &name, &given, 0, NULL, NULL), DLRO_ERR_DTYPE,
               "is padded to whole bytes");
  dlro_tensor_release(tensor);
  checked("sub-byte elements are saved packed");
}

static void over_itself(void) {
  int64_t shape[] = {300, 1000};
  const char *const name = "t";
  const struct DLManagedTensorVersioned *given;
  struct DLManagedTensorVersioned *tensor = counting(2, shape), *mapped, *back;
  dlro_archive *archive;
  struct stat status;
  const mode_t mask = umask(027);
  CHECK_OK(dlro_npy_save("./same.npy", tensor));
  CHECK_OK(dlro_npy_map("same.npy", DLRO_MAP_READ_ONLY, &mapped));
  CHECK_OK(dlro_npy_save("same.npy", mapped));
  CHECK(equal(tensor, mapped)); /* the mapping keeps the old file */
  CHECK_OK(dlro_npy_map("same.npy", DLRO_MAP_READ_ONLY, &back));
  CHECK(equal(tensor, back));
  dlro_tensor_release(back);
  dlro_tensor_release(mapped);
  given = tensor;
  CHECK_OK(dlro_safetensors_save("same", 1, &name, &given, 0, NULL, NULL));
  CHECK_OK(dlro_safetensors_map("same", DLRO_MAP_COPY_ON_WRITE, &archive));
  CHECK_OK(dlro_archive_tensor(archive, 0, &mapped));
  given = mapped;
  CHECK_OK(dlro_safetensors_save("same", 1, &name, &given, 0, NULL, NULL));
  CHECK(equal(tensor, mapped));
  dlro_tensor_release(mapped);
  dlro_archive_release(archive);
  CHECK(stat("same", &status) == 0 && (status.st_mode & 0777) == 0640);
  umask(mask);
  checked("a tensor is saved over the file that it is mapped from; the mode is what the umask leaves");

  CHECK(symlink("same.npy", "link.npy") == 0);
  CHECK(symlink("nowhere", "dangling.npy") == 0);
  CHECK_OK(dlro_npy_save("link.npy", tensor));
  CHECK_OK(dlro_npy_save("dangling.npy", tensor));
  CHECK(lstat("link.npy", &status) == 0 && S_ISREG(status.st_mode));
  CHECK(stat("nowhere", &status) != 0);
  dlro_tensor_release(tensor);
  checked("a symbolic link is replaced itself");
}

static void failures(void) {
  int64_t shape[] = {300, 1000}, strides[] = {1, 300}, many[65], one[] = {4};
  const struct rlimit small = {100000, RLIM_INFINITY};
  struct rlimit large;
  DLTensor layout = {NULL, {kDLCPU, 0}, 1, {kDLBfloat, 16, 1}, one, NULL, 0};
  char data[64] = {0}, name300[301], *long_path;
  const char *names[] = {"a", "b"};
  const char *keys[] = {"k", "k"}, *values[] = {"1", "2"};
  struct DLManagedTensorVersioned *tensor = counting(2, shape), *other, *broken;
  const struct DLManagedTensorVersioned *given[2];
  unsigned char *bytes;
  size_t i;
  const int before = open_descriptors();
  int files;
  given[0] = given[1] = tensor;

  write_file("old", "old", 3);
  files = count_in(".");
  signal(SIGXFSZ, SIG_IGN);
  CHECK(getrlimit(RLIMIT_FSIZE, &large) == 0 && setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_STATUS(dlro_npy_save("old", tensor), DLRO_ERR_IO, "old: write failed: File too large");
  CHECK_STATUS(dlro_safetensors_save("old", 2, names, given, 0, NULL, NULL), DLRO_ERR_IO, "old: write failed");
  other = view(counting(2, shape), 2, shape, strides, 0);
  given[0] = other;
  CHECK_STATUS(dlro_safetensors_save("old", 1, names, given, 0, NULL, NULL), DLRO_ERR_IO,
               "old: write failed");
  given[0] = tensor;
  dlro_tensor_release(other);
  CHECK(setrlimit(RLIMIT_FSIZE, &large) == 0);
  CHECK(read_file("old", &bytes) == 3 && strcmp((char *)bytes, "old") == 0);
  free(bytes);
  CHECK(count_in(".") == files && open_descriptors() == before);
  checked("where the disk refuses, the old file stays and no temporary one does");

  memset(name300, 'n', 300);
  name300[300] = 0;
  long_path = (char *)malloc(5002);
  CHECK(long_path != NULL);
  memset(long_path, 'd', 5000);
  strcpy(long_path + 4999, "/x");
  CHECK(mkfifo("pipe", 0600) == 0 && mkdir("sub", 0700) == 0);
  files = count_in(".");
  CHECK_STATUS(dlro_npy_save("missing/t.npy", tensor), DLRO_ERR_IO, "open of the folder failed: No such file");
  CHECK_STATUS(dlro_npy_save("old/t.npy", tensor), DLRO_ERR_IO, "open of the folder failed: Not a directory");
  CHECK_STATUS(dlro_npy_save("", tensor), DLRO_ERR_IO, "open failed: No such file");
  CHECK_STATUS(dlro_npy_save("sub/", tensor), DLRO_ERR_IO, "open failed: Is a directory");
  CHECK_STATUS(dlro_npy_save("sub", tensor), DLRO_ERR_IO, "exists and is not a regular file");
  CHECK_STATUS(dlro_npy_save("..", tensor), DLRO_ERR_IO, "exists and is not a regular file");
  CHECK_STATUS(dlro_npy_save("pipe", tensor), DLRO_ERR_IO, "exists and is not a regular file");
  CHECK_STATUS(dlro_npy_save("/dev/null", tensor), DLRO_ERR_IO, "/dev/null: it exists and is not a regular file");
  CHECK_STATUS(dlro_npy_save(name300, tensor), DLRO_ERR_IO, "rename failed: File name too long");
  CHECK_STATUS(dlro_npy_save(long_path, tensor), DLRO_ERR_IO, "open of the folder failed: File name too long");
  free(long_path);
  name300[255] = 0;
  CHECK_OK(dlro_npy_save(name300, tensor));
  unlink(name300);
  CHECK(rmdir("sub") == 0);
  CHECK(count_in(".") == files - 1 && open_descriptors() == before);
  checked("paths that cannot be written; the longest name that can");

  CHECK_STATUS(dlro_npy_save(NULL, tensor), DLRO_ERR_NULL, "path is NULL");
  CHECK_STATUS(dlro_npy_save("t", NULL), DLRO_ERR_NULL, "tensor is NULL");
  CHECK_STATUS(dlro_safetensors_save(NULL, 0, NULL, NULL, 0, NULL, NULL), DLRO_ERR_NULL, "path is NULL");
  CHECK_STATUS(dlro_safetensors_save("t", 1, NULL, given, 0, NULL, NULL), DLRO_ERR_NULL, "names is NULL");
  CHECK_STATUS(dlro_safetensors_save("t", 1, names, NULL, 0, NULL, NULL), DLRO_ERR_NULL, "tensors is NULL");
  CHECK_STATUS(dlro_safetensors_save("t", 0, NULL, NULL, 1, NULL, values), DLRO_ERR_NULL, "metadata_keys is NULL");
  CHECK_STATUS(dlro_safetensors_save("t", 0, NULL, NULL, 1, keys, NULL), DLRO_ERR_NULL, "metadata_values is NULL");
  CHECK_STATUS(dlro_safetensors_save("t", 0, NULL, NULL, 2, keys, values), DLRO_ERR_ARGUMENT, "'k' is there twice");
  names[1] = NULL;
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_NULL, "names[1] is NULL");
  names[1] = "a";
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_ARGUMENT, "'a' is there twice");
  names[1] = "__metadata__";
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_ARGUMENT,
               "stands for the metadata");
  names[1] = "\xff";
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_ARGUMENT, "is not UTF-8");
  names[1] = "b";
  given[1] = NULL;
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_NULL, "tensors[1] is NULL");
  checked("NULL and wrong names");

  layout.data = data;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &other));
  CHECK_STATUS(dlro_npy_save("t", other), DLRO_ERR_DTYPE,
               "t: dtype (code 4, bits 16, lanes 1) has no name in an .npy file");
  dlro_tensor_release(other);
  layout.dtype.code = kDLComplex;
  layout.dtype.bits = 128;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &other));
  given[1] = other;
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_DTYPE,
               "t: b: dtype (code 5, bits 128, lanes 1) has no name in a safetensors file");
  dlro_tensor_release(other);
  layout.dtype.code = kDLFloat;
  layout.dtype.bits = 32;
  layout.device.device_type = kDLCUDA;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &other));
  given[1] = other;
  CHECK_STATUS(dlro_npy_save("t", other), DLRO_ERR_DEVICE, "holds memory that the host cannot read");
  CHECK_STATUS(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL), DLRO_ERR_DEVICE, "t: b: device (type 2");
  dlro_tensor_release(other);
  layout.device.device_type = kDLCPU;
  for (i = 0; i < 65; i++) many[i] = 1;
  layout.ndim = 65;
  layout.shape = many;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &other));
  CHECK_STATUS(dlro_npy_save("t", other), DLRO_ERR_BOUNDS, "ndim is 65; it must be from 0 to 64");
  given[1] = other;
  CHECK_OK(dlro_safetensors_save("t", 2, names, given, 0, NULL, NULL));
  unlink("t");
  dlro_tensor_release(other);
  broken = tensor;
  broken->version.major = 2;
  CHECK_STATUS(dlro_npy_save("t", broken), DLRO_ERR_VERSION, "DLPack version 2.");
  CHECK_STATUS(dlro_safetensors_save("t", 1, names, given, 0, NULL, NULL), DLRO_ERR_VERSION,
               "t: a: the tensor has DLPack version 2.");
  broken->version.major = 1;
  broken->dl_tensor.shape[1] = -1;
  CHECK_STATUS(dlro_npy_save("t", broken), DLRO_ERR_BOUNDS, "shape[1] is -1");
  broken->dl_tensor.shape[1] = 1000;
  dlro_tensor_release(tensor);
  CHECK(access("t", F_OK) != 0 && open_descriptors() == before);
  checked("tensors that a format cannot say");
}

int main(void) {
  enter_folder();
  layouts();
  many();
  packed();
  over_itself();
  failures();
  leave_folder();
  return 0;
}
