/* Chapter files: .npy files as tensors. The files are made here, byte by byte. */
#include "foreign_legacy.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_ONLY_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define COPIED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)

static const char PATH[] = "array.npy";

/* --- making files --- */

struct file {
  uint8_t *bytes;
  size_t nbytes, header;
};

/* `text` is filled up with spaces and a line break to `aligned` bytes; 0 for none. */
static struct file a_file(int major, const char *text, size_t aligned, const void *data, size_t nbytes) {
  const size_t front = major == 1 ? 10 : 12, length = strlen(text);
  struct file file;
  size_t padded = length, i;
  if (aligned > 0) padded = (front + length + 1 + aligned - 1) / aligned * aligned - front;
  file.header = front + padded;
  file.nbytes = file.header + nbytes;
  file.bytes = (uint8_t *)malloc(file.nbytes + 1);
  memcpy(file.bytes, "\x93NUMPY", 6);
  file.bytes[6] = (uint8_t)major;
  file.bytes[7] = 0;
  for (i = 8; i < front; i++) file.bytes[i] = (uint8_t)(padded >> 8 * (i - 8));
  memset(file.bytes + front, ' ', padded);
  memcpy(file.bytes + front, text, length);
  if (aligned > 0) file.bytes[file.header - 1] = '\n';
  if (nbytes > 0) memcpy(file.bytes + file.header, data, nbytes);
  return file;
}

static void write_bytes(const char *path, const void *bytes, size_t nbytes) {
  FILE *stream = fopen(path, "wb");
  CHECK(stream != NULL && fwrite(bytes, 1, nbytes, stream) == nbytes && fclose(stream) == 0);
}

static void write_text(const char *text, const void *data, size_t nbytes) {
  struct file file = a_file(1, text, 64, data, nbytes);
  write_bytes(PATH, file.bytes, file.nbytes);
  free(file.bytes);
}

static bool file_is(const char *path, const void *bytes, size_t nbytes) {
  uint8_t *found = (uint8_t *)malloc(nbytes + 2);
  FILE *stream = fopen(path, "rb");
  bool same;
  CHECK(stream != NULL);
  same = fread(found, 1, nbytes + 1, stream) == nbytes && memcmp(found, bytes, nbytes) == 0;
  CHECK(fclose(stream) == 0);
  free(found);
  return same;
}

/* --- what a process holds --- */

static int open_files(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  CHECK(folder != NULL);
  while (readdir(folder) != NULL) count++;
  CHECK(closedir(folder) == 0);
  return count;
}

/* Mappings of the file of that name, a deleted one too. */
static int mappings(const char *name) {
  FILE *stream = fopen("/proc/self/maps", "r");
  char line[4352];
  int count = 0;
  CHECK(stream != NULL);
  while (fgets(line, sizeof line, stream) != NULL) count += strstr(line, name) != NULL;
  CHECK(fclose(stream) == 0);
  return count;
}

static struct DLManagedTensorVersioned *map(uint32_t mode) {
  struct DLManagedTensorVersioned *tensor;
  CHECK_OK(dlro_npy_map(PATH, mode, &tensor));
  CHECK_OK(dlro_tensor_validate(tensor));
  return tensor;
}

static struct DLManagedTensorVersioned *import(struct DLManagedTensorVersioned *foreign,
                                               const dlro_import_options *options) {
  struct DLManagedTensorVersioned *tensor;
  CHECK_OK(dlro_tensor_import(foreign, options, &tensor));
  return tensor;
}

static dlro_import_options wanting(uint32_t access) {
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  options.access = access;
  return options;
}

static void *writable(struct DLManagedTensorVersioned *tensor) {
  void *address;
  CHECK_OK(dlro_tensor_data_mut(tensor, &address));
  return address;
}

/* --- what is mapped --- */

static const float floats[6] = {0, 1, 2, 3, 4, 5};
static const char FLOATS_2_3[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";

static void both_modes(void) {
  const struct file file = a_file(1, FLOATS_2_3, 64, floats, sizeof floats);
  const int before = open_files();
  struct DLManagedTensorVersioned *tensor;
  void *address = STALE(void);
  uint32_t mode;
  write_bytes(PATH, file.bytes, file.nbytes);
  for (mode = DLRO_MAP_READ_ONLY; mode <= DLRO_MAP_COPY_ON_WRITE; mode++) {
    tensor = map(mode);
    CHECK(tensor->version.major == 1 && tensor->version.minor == 0 && tensor->deleter != NULL);
    CHECK(tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.shape[0] == 2 && tensor->dl_tensor.shape[1] == 3);
    CHECK(tensor->dl_tensor.strides[0] == 3 && tensor->dl_tensor.strides[1] == 1 && tensor->dl_tensor.byte_offset == 0);
    CHECK(memcmp(&tensor->dl_tensor.dtype, &FLOAT32, sizeof FLOAT32) == 0);
    CHECK(tensor->dl_tensor.device.device_type == kDLCPU && tensor->dl_tensor.device.device_id == 0);
    CHECK((uintptr_t)address_of(tensor) % 64 == 0 && memcmp(address_of(tensor), floats, sizeof floats) == 0);
    CHECK(tensor->flags == (mode == DLRO_MAP_READ_ONLY ? READ_ONLY_FLAG : 0));
    CHECK(dlro_tensor_mutability(tensor) ==
          (uint32_t)(mode == DLRO_MAP_READ_ONLY ? DLRO_MUTABILITY_READ_ONLY : DLRO_MUTABILITY_WRITABLE));
    if (mode == DLRO_MAP_READ_ONLY) {
      CHECK_STATUS(dlro_tensor_data_mut(tensor, &address), DLRO_ERR_READ_ONLY, "read-only");
      CHECK(address == NULL);
    } else {
      memset(writable(tensor), 0x55, sizeof floats);
    }
    CHECK(open_files() == before + (mode == DLRO_MAP_READ_ONLY) && mappings(PATH) == 1);
    dlro_tensor_release(tensor);
    CHECK(open_files() == before && mappings(PATH) == 0);
    CHECK(file_is(PATH, file.bytes, file.nbytes));
  }
  free(file.bytes);
  checked("a file is mapped read-only and copy-on-write; its descriptor and its mapping end with the tensor");
}

/* The child writes and must die of it, there. */
static volatile uintptr_t expected_fault;

static void on_fault(int number, siginfo_t *info, void *context) {
  (void)context;
  if (number == SIGSEGV && info->si_code == SEGV_ACCERR && (uintptr_t)info->si_addr == expected_fault) {
    kill(getpid(), SIGUSR1);
  }
  signal(SIGSEGV, SIG_DFL); /* somewhere else: die of that */
}

static int signal_of_child_that_writes(const void *address) {
  int status;
  pid_t child;
  fflush(stdout);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const struct rlimit none = {0, 0};
    struct sigaction action;
    setrlimit(RLIMIT_CORE, &none);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGUSR1, SIG_DFL);
    expected_fault = (uintptr_t)address;
    *(volatile uint8_t *)(uintptr_t)address = 1;
    kill(getpid(), SIGUSR2); /* the write went through */
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  return WTERMSIG(status);
}

static void read_only_is_read_only(void) {
  struct DLManagedTensorVersioned *tensor;
  uint8_t *address;
  write_text(FLOATS_2_3, floats, sizeof floats);
  tensor = map(DLRO_MAP_READ_ONLY);
  CHECK(signal_of_child_that_writes(address_of(tensor)) == SIGUSR1);
  CHECK(signal_of_child_that_writes((const uint8_t *)address_of(tensor) + 23) == SIGUSR1);
  dlro_tensor_release(tensor);
  tensor = map(DLRO_MAP_COPY_ON_WRITE);
  CHECK(signal_of_child_that_writes(address_of(tensor)) == SIGUSR2);
  address = (uint8_t *)writable(tensor);
  CHECK(memcmp(address, floats, sizeof floats) == 0); /* the child's page is the child's */
  dlro_tensor_release(tensor);
  checked("case A12: a write through read-only memory is SIGSEGV, and through copy-on-write memory it is not");
}

static void fork_and_release(void) {
  struct DLManagedTensorVersioned *tensor;
  int status;
  pid_t child;
  write_text(FLOATS_2_3, floats, sizeof floats);
  tensor = map(DLRO_MAP_READ_ONLY);
  fflush(stdout);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dlro_tensor_release(tensor);
    kill(getpid(), mappings(PATH) == 0 ? SIGUSR1 : SIGUSR2);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
  CHECK(memcmp(address_of(tensor), floats, sizeof floats) == 0);
  dlro_tensor_release(tensor);
  checked("a child may release the mapping that it inherited; the parent's stays");
}

static void not_inherited_by_exec(void) {
  struct DLManagedTensorVersioned *tensor = map(DLRO_MAP_READ_ONLY);
  int fd, found = 0;
  for (fd = 3; fd < 256; fd++) {
    char link[64], target[4096];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = 0;
    if (strstr(target, PATH) == NULL) continue;
    found++;
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
  }
  CHECK(found == 1);
  dlro_tensor_release(tensor);
  checked("the file is opened for reading only, and not handed to programs that this one starts");
}

static void shapes_and_orders(void) {
  const int before = open_files();
  struct DLManagedTensorVersioned *tensor;
  bool flag;
  uint32_t mode;
  int n;
  for (mode = DLRO_MAP_READ_ONLY; mode <= DLRO_MAP_COPY_ON_WRITE; mode++) {
    write_text("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", "\0\0\0\0\0\0\4@", 8);
    tensor = map(mode);
    CHECK(tensor->dl_tensor.ndim == 0 && *(const double *)address_of(tensor) == 2.5);
    dlro_tensor_release(tensor);
    for (n = 0; n < 2; n++) {
      write_text(n == 0 ? "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }"
                        : "{'descr': '<f8', 'fortran_order': True, 'shape': (9223372036854775807, 0, 3), }",
                 NULL, 0);
      tensor = map(mode);
      CHECK(tensor->dl_tensor.ndim == (n == 0 ? 1 : 3) && tensor->dl_tensor.data == NULL && address_of(tensor) == NULL);
      CHECK(dlro_tensor_mutability(tensor) ==
            (uint32_t)(mode == DLRO_MAP_READ_ONLY ? DLRO_MUTABILITY_READ_ONLY : DLRO_MUTABILITY_WRITABLE));
      dlro_tensor_release(tensor);
      CHECK(open_files() == before);
    }
    write_text("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", floats, sizeof floats);
    tensor = map(mode);
    CHECK(tensor->dl_tensor.strides[0] == 1 && tensor->dl_tensor.strides[1] == 2);
    CHECK_OK(dlro_tensor_is_column_major(tensor, &flag));
    CHECK(flag && memcmp(address_of(tensor), floats, sizeof floats) == 0);
    {
      const float logical[6] = {0, 2, 4, 1, 3, 5};
      struct DLManagedTensorVersioned *copied;
      CHECK_OK(dlro_tensor_copy(tensor, &copied));
      CHECK(memcmp(address_of(copied), logical, sizeof logical) == 0);
      dlro_tensor_release(copied);
    }
    dlro_tensor_release(tensor);
  }
  checked("0-d, empty and Fortran-ordered arrays");
}

static void dtypes(void) {
  static const struct {
    const char *name;
    DLDataType dtype;
  } known[] = {
      {"|b1", {kDLBool, 8, 1}},    {"|i1", {kDLInt, 8, 1}},     {"<i2", {kDLInt, 16, 1}},    {"<i4", {kDLInt, 32, 1}},
      {"<i8", {kDLInt, 64, 1}},    {"|u1", {kDLUInt, 8, 1}},    {"<u2", {kDLUInt, 16, 1}},   {"<u4", {kDLUInt, 32, 1}},
      {"<u8", {kDLUInt, 64, 1}},   {"<f2", {kDLFloat, 16, 1}},  {"<f4", {kDLFloat, 32, 1}},  {"<f8", {kDLFloat, 64, 1}},
      {"<f16", {kDLFloat, 128, 1}}, {"<c8", {kDLComplex, 64, 1}}, {"<c16", {kDLComplex, 128, 1}},
      {"=i4", {kDLInt, 32, 1}},    {">u1", {kDLUInt, 8, 1}}, /* one byte has no order */
  };
  static const struct {
    const char *descr, *text;
  } refused[] = {
      {"'>f4'", "big-endian"}, {"'>i2'", "big-endian"}, {"'|O'", "Python objects"}, {"'<U3'", "is text"},
      {"'|S5'", "byte string"}, {"'<M8[ns]'", "date"}, {"'<m8[s]'", "time span"}, {"'|V2'", "raw bytes"},
      {"[('a', '<f4'), ('b', '<i4')]", "structured"}, {"('<f4', (2,))", "subarray"},
      {"'<f3'", "none that NumPy writes"},
      {"'<c32'", "complex256"}, {"'<b1x'", "none that NumPy writes"},
  };
  const uint8_t data[64] = {0, 1, 2, 255};
  struct DLManagedTensorVersioned *tensor;
  char text[200];
  size_t i;
  int before;
  for (i = 0; i < sizeof known / sizeof known[0]; i++) {
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (4,), }", known[i].name);
    write_text(text, data, (size_t)known[i].dtype.bits / 2);
    tensor = map(DLRO_MAP_READ_ONLY);
    CHECK(memcmp(&tensor->dl_tensor.dtype, &known[i].dtype, sizeof(DLDataType)) == 0);
    CHECK(memcmp(address_of(tensor), data, (size_t)known[i].dtype.bits / 2) == 0);
    dlro_tensor_release(tensor);
  }
  checked("every dtype that NumPy and DLPack can both name");
  before = open_files();
  for (i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    snprintf(text, sizeof text, "{'descr': %s, 'fortran_order': False, 'shape': (4,), }", refused[i].descr);
    write_text(text, data, sizeof data);
    tensor = STALE(struct DLManagedTensorVersioned);
    CHECK_STATUS(dlro_npy_map(PATH, DLRO_MAP_READ_ONLY, &tensor), DLRO_ERR_DTYPE, refused[i].text);
    CHECK(tensor == NULL && strncmp(dlro_last_error_message(), "array.npy: dtype ", 17) == 0);
  }
  CHECK(open_files() == before && mappings(PATH) == 0);
  checked("case F7: big-endian, object, structured and text arrays are refused by name");
}

static void versions_and_offsets(void) {
  struct DLManagedTensorVersioned *tensor;
  struct file file;
  char text[9000];
  int major;
  size_t lead;
  for (major = 1; major <= 3; major++) {
    file = a_file(major, FLOATS_2_3, 64, floats, sizeof floats);
    write_bytes(PATH, file.bytes, file.nbytes);
    free(file.bytes);
    tensor = map(DLRO_MAP_READ_ONLY);
    CHECK(memcmp(address_of(tensor), floats, sizeof floats) == 0);
    dlro_tensor_release(tensor);
  }
  for (lead = 0; lead < 70; lead++) { /* data at every offset of a cache line */
    snprintf(text, sizeof text, "%s%*s\n", FLOATS_2_3, (int)lead, "");
    file = a_file(1, text, 0, floats, sizeof floats);
    write_bytes(PATH, file.bytes, file.nbytes);
    tensor = map(lead % 2 ? DLRO_MAP_READ_ONLY : DLRO_MAP_COPY_ON_WRITE);
    CHECK((uintptr_t)address_of(tensor) % 64 == file.header % 64);
    CHECK(memcmp(address_of(tensor), floats, sizeof floats) == 0);
    dlro_tensor_release(tensor);
    free(file.bytes);
  }
  for (lead = 4000; lead < 9000 - 62; lead += 1 + lead % 97) { /* and behind the first pages of the file */
    snprintf(text, sizeof text, "%s%*s\n", FLOATS_2_3, (int)lead, "");
    file = a_file(2, text, 0, floats, sizeof floats);
    write_bytes(PATH, file.bytes, file.nbytes);
    tensor = map(DLRO_MAP_READ_ONLY);
    CHECK(memcmp(address_of(tensor), floats, sizeof floats) == 0);
    dlro_tensor_release(tensor);
    CHECK(mappings(PATH) == 0);
    free(file.bytes);
  }
  checked("versions 1.0, 2.0, 3.0, data at any offset of the file");
}

/* --- what is refused --- */

static void refuse(const char *path, uint32_t mode, int32_t expected, const char *text) {
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  const int before = open_files();
  CHECK_STATUS(dlro_npy_map(path, mode, &tensor), expected, text);
  CHECK(tensor == NULL && open_files() == before && mappings(path) == 0);
  CHECK(strncmp(dlro_last_error_message(), path, strlen(path)) == 0 && dlro_last_error_message()[strlen(path)] == ':');
}

static void truncated(void) {
  const struct file file = a_file(1, FLOATS_2_3, 64, floats, sizeof floats);
  size_t length;
  char text[32];
  for (length = 0; length < file.nbytes; length++) {
    write_bytes(PATH, file.bytes, length);
    snprintf(text, sizeof text, "and has %zu", length);
    refuse(PATH, length % 2 ? DLRO_MAP_READ_ONLY : DLRO_MAP_COPY_ON_WRITE, DLRO_ERR_FORMAT, text);
  }
  write_bytes(PATH, file.bytes, file.nbytes);
  dlro_tensor_release(map(DLRO_MAP_READ_ONLY));
  free(file.bytes);
  checked("a file cut at any length is refused, from 0 bytes to all but one");
}

static void corrupt(void) {
  struct file file = a_file(1, FLOATS_2_3, 64, floats, sizeof floats);
  const int before = open_files();
  size_t at;
  int change;
  int accepted = 0;
  for (at = 0; at < file.header; at++) {
    for (change = 0; change < 4; change++) {
      static const uint8_t changes[4] = {0x01, 0x80, 0x10, 0xff};
      struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
      int32_t status;
      file.bytes[at] ^= changes[change];
      write_bytes(PATH, file.bytes, file.nbytes);
      status = (int32_t)dlro_npy_map(PATH, DLRO_MAP_READ_ONLY, &tensor);
      if (status == DLRO_OK) { /* another digit in the shape, say: still within the file */
        uint64_t nbytes;
        CHECK_OK(dlro_tensor_nbytes(tensor, &nbytes));
        CHECK(nbytes <= file.nbytes - file.header);
        dlro_tensor_release(tensor);
        accepted++;
      } else {
        CHECK(tensor == NULL && strncmp(dlro_last_error_message(), "array.npy: ", 11) == 0);
        CHECK(status == DLRO_ERR_FORMAT || status == DLRO_ERR_DTYPE || status == DLRO_ERR_BOUNDS);
      }
      file.bytes[at] ^= changes[change];
    }
  }
  CHECK(accepted > 0 && accepted < 300 && open_files() == before && mappings(PATH) == 0);
  free(file.bytes);
  checked("any damaged byte of the header is refused or harmless");
}

static void claims(void) {
  struct file file;
  char text[128];
  static const struct {
    const char *shape;
    int32_t status;
    const char *text;
  } shapes[] = {
      {"(-1,)", DLRO_ERR_BOUNDS, "shape[0] is -1"},
      {"(3, -9223372036854775808)", DLRO_ERR_BOUNDS, "shape[1] is -9223372036854775808"},
      {"(9223372036854775808,)", DLRO_ERR_BOUNDS, "does not fit"},
      {"(99999999999999999999999999,)", DLRO_ERR_BOUNDS, "does not fit"},
      {"(4611686018427387904, 4)", DLRO_ERR_BOUNDS, "does not fit"},
      {"(2305843009213693952,)", DLRO_ERR_BOUNDS, "does not fit"},
      {"(1099511627776,)", DLRO_ERR_FORMAT, "must have 4398046511232 bytes"},
      {"(7,)", DLRO_ERR_FORMAT, "must have 156 bytes for what is asked of it, and has 152"},
      {"(6)", DLRO_ERR_FORMAT, "not a tuple"},
      {"(2 3)", DLRO_ERR_FORMAT, "at byte "},
      {"[2, 3]", DLRO_ERR_FORMAT, "a tuple of integers"},
      {"(2.0,)", DLRO_ERR_FORMAT, "at byte "},
      {"(True,)", DLRO_ERR_FORMAT, "a decimal integer"},
  };
  size_t i;
  for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shapes[i].shape);
    write_text(text, floats, sizeof floats);
    refuse(PATH, DLRO_MAP_READ_ONLY, shapes[i].status, shapes[i].text);
  }
  /* Lengths of the header itself. */
  file = a_file(2, FLOATS_2_3, 64, floats, sizeof floats);
  memset(file.bytes + 8, 0xff, 4);
  write_bytes(PATH, file.bytes, file.nbytes);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "at byte 8: expected a header length of at most 10000 bytes");
  memcpy(file.bytes + 8, "\x10\x27\0\0", 4); /* 10000, and the file ends long before */
  write_bytes(PATH, file.bytes, file.nbytes);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "must have 10012 bytes");
  free(file.bytes);
  file = a_file(1, FLOATS_2_3, 64, floats, sizeof floats);
  file.bytes[8] = file.bytes[9] = 0xff;
  write_bytes(PATH, file.bytes, file.nbytes);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "at byte 8");
  file.bytes[6] = 4;
  write_bytes(PATH, file.bytes, file.nbytes);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "at byte 6: expected version 1.0, 2.0 or 3.0");
  write_bytes(PATH, "PK\3\4 this is an .npz", 20);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "at byte 0: expected an .npy file");
  free(file.bytes);
  write_text("{'descr': '<f4', 'fortran_order': False, }", floats, sizeof floats);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "'shape'");
  write_text("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }", floats, sizeof floats);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "True or False");
  write_text("__import__('os').abort()", floats, sizeof floats);
  refuse(PATH, DLRO_MAP_READ_ONLY, DLRO_ERR_FORMAT, "a Python dict");
  checked("headers that claim too much, or something else, are refused with the byte where it is wrong");
}

static void other_files(void) {
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  static char longer[5000], deep[1500];
  size_t i;
  CHECK_STATUS(dlro_npy_map(NULL, 0, &tensor), DLRO_ERR_NULL, "path is NULL");
  CHECK(tensor == NULL);
  write_text(FLOATS_2_3, floats, sizeof floats);
  CHECK_STATUS(dlro_npy_map(PATH, 0, NULL), DLRO_ERR_NULL, "array.npy: out is NULL");
  refuse(PATH, 2, DLRO_ERR_ARGUMENT, "mode is 2");
  refuse(PATH, UINT32_MAX, DLRO_ERR_ARGUMENT, "mode is 4294967295");
  refuse("missing.npy", 0, DLRO_ERR_IO, "missing.npy: open failed: No such file or directory (errno 2)");
  refuse("array.npy/inside", 0, DLRO_ERR_IO, "Not a directory");
  refuse("\xff\xfe.npy", 0, DLRO_ERR_IO, "\xff\xfe.npy: open failed");
  CHECK(mkdir("folder.npy", 0700) == 0);
  refuse("folder.npy", 0, DLRO_ERR_FORMAT, "not a regular file");
  CHECK(rmdir("folder.npy") == 0);
  CHECK(mkfifo("fifo.npy", 0600) == 0);
  refuse("fifo.npy", 0, DLRO_ERR_FORMAT, "not a regular file"); /* and nobody waits for a writer */
  CHECK(unlink("fifo.npy") == 0);
  refuse("/dev/null", 0, DLRO_ERR_FORMAT, "not a regular file");
  CHECK(symlink("loop.npy", "loop.npy") == 0);
  refuse("loop.npy", 0, DLRO_ERR_IO, "Too many levels of symbolic links");
  CHECK(unlink("loop.npy") == 0);
  CHECK(symlink(PATH, "link.npy") == 0);
  CHECK_OK(dlro_npy_map("link.npy", 0, &tensor));
  dlro_tensor_release(tensor);
  CHECK(unlink("link.npy") == 0);
  if (geteuid() != 0) {
    CHECK(chmod(PATH, 0) == 0);
    refuse(PATH, 0, DLRO_ERR_IO, "Permission denied");
    CHECK(chmod(PATH, 0600) == 0);
  }
  memset(longer, 'x', sizeof longer - 1);
  CHECK_STATUS(dlro_npy_map(longer, 0, &tensor), DLRO_ERR_IO, "File name too long");
  CHECK(tensor == NULL && strstr(dlro_last_error_message(), "...xxxx") != NULL);
  for (i = 0; i + 5 < sizeof deep; i += 2) memcpy(deep + i, "./", 2);
  memcpy(deep + i - 2, "m.np", 5); /* a long path keeps its end, where the name is */
  CHECK_STATUS(dlro_npy_map(deep, 0, &tensor), DLRO_ERR_IO, "/m.np: open failed: No such file");
  {
    /* No descriptor left. */
    struct rlimit before, none;
    const int highest = dup(0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0 && highest >= 0);
    none = before;
    none.rlim_cur = (rlim_t)highest;
    CHECK(close(highest) == 0 && setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_STATUS(dlro_npy_map(PATH, 0, &tensor), DLRO_ERR_IO, "array.npy: open failed: Too many open files");
    CHECK(tensor == NULL && setrlimit(RLIMIT_NOFILE, &before) == 0);
  }
  checked("what is no regular file, is not there, or cannot be opened: the path, the call and the reason");
}

/* --- the right to write --- */

enum { LARGE = 1 << 20 };

static struct file a_large_file(void) {
  static uint8_t data[LARGE];
  size_t i;
  struct file file;
  for (i = 0; i < LARGE; i++) data[i] = (uint8_t)(i * 7 + i / 251);
  file = a_file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1024, 1024), }", 64, data, LARGE);
  write_bytes(PATH, file.bytes, file.nbytes);
  return file;
}

static void write_access(void) {
  const struct file file = a_large_file();
  const uint8_t *data = file.bytes + file.header;
  const dlro_import_options write = wanting(DLRO_ACCESS_WRITE);
  dlro_import_options options = write;
  const int before = open_files();
  struct DLManagedTensorVersioned *tensor, *view, *shared;
  const uint8_t *address;
  uint8_t *mine;
  size_t i;

  tensor = map(DLRO_MAP_READ_ONLY);
  address = (const uint8_t *)address_of(tensor);
  options.copy = DLRO_COPY_NEVER;
  CHECK_STATUS(dlro_tensor_import(tensor, &options, &shared), DLRO_ERR_READ_ONLY, "NEVER");
  CHECK(shared == NULL);
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &view));
  tensor = import(tensor, &write);
  CHECK(tensor->flags == 0 && dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE); /* no IS_COPIED */
  CHECK_OK(dlro_tensor_validate(tensor));
  mine = (uint8_t *)writable(tensor);
  CHECK(mine != address && memcmp(mine, data, LARGE) == 0 && mappings(PATH) == 2);
  CHECK(tensor->dl_tensor.shape[0] == 1024 && tensor->dl_tensor.strides[0] == 1024);
  for (i = 0; i < LARGE; i += 4096) mine[i] ^= 0xff;
  mine[LARGE - 1] ^= 0xff;
  CHECK(memcmp(address, data, LARGE) == 0 && file_is(PATH, file.bytes, file.nbytes));
  CHECK((mine[0] ^ data[0]) == 0xff && mine[1] == data[1] && (mine[LARGE - 1] ^ data[LARGE - 1]) == 0xff);
  dlro_tensor_release(view);
  CHECK(mappings(PATH) == 1 && open_files() == before);
  /* What was written stays when the same tensor is asked again, and goes along into copies. */
  CHECK(import(tensor, &write) == tensor);
  CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &view));
  view = import(view, &write);
  CHECK((view->flags & COPIED_FLAG) && memcmp(address_of(view), mine, LARGE) == 0);
  CHECK(address_of(view) != (const void *)mine);
  dlro_tensor_release(view);
  dlro_tensor_release(tensor);
  CHECK(mappings(PATH) == 0 && open_files() == before && file_is(PATH, file.bytes, file.nbytes));
  checked("WRITE on a large mapped tensor: a private mapping, no copy; neither the file nor other views change");

  /* A window that begins at no page. */
  for (i = 0; i < 3; i++) {
    static const uint64_t offsets[3] = {1, 4096 + 17, 200001};
    static int64_t shape[2] = {300, 500}, strides[2] = {1024, -2}, dense[2] = {1024, 2};
    DLTensor window = host_tensor(NULL, UINT8, 2, shape, i == 1 ? strides : dense);
    struct DLManagedTensorVersioned *copied, *again;
    tensor = map(DLRO_MAP_READ_ONLY);
    window.byte_offset = offsets[i] + (i == 1 ? 998 : 0);
    CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, &window, &view));
    CHECK_OK(dlro_tensor_copy(view, &copied));
    dlro_tensor_release(tensor);
    view = import(view, &write);
    CHECK(!(view->flags & COPIED_FLAG) && mappings(PATH) == 1);
    CHECK(view->dl_tensor.strides[0] == 1024 && view->dl_tensor.strides[1] == (i == 1 ? -2 : 2));
    CHECK_OK(dlro_tensor_copy(view, &again));
    CHECK(memcmp(address_of(copied), address_of(again), 300 * 500) == 0);
    CHECK_OK(dlro_tensor_copy_into(copied, view));
    dlro_tensor_release(again);
    dlro_tensor_release(copied);
    dlro_tensor_release(view);
    CHECK(mappings(PATH) == 0 && file_is(PATH, file.bytes, file.nbytes));
  }
  checked("WRITE on a window of a mapped tensor, at any offset and with negative strides");

  /* What a private mapping cannot give is given by a copy. */
  options = write;
  options.layout = DLRO_LAYOUT_COLUMN_MAJOR;
  tensor = import(map(DLRO_MAP_READ_ONLY), &options);
  CHECK((tensor->flags & COPIED_FLAG) && mappings(PATH) == 0 && tensor->dl_tensor.strides[0] == 1);
  CHECK(((const uint8_t *)address_of(tensor))[1] == data[1024]);
  dlro_tensor_release(tensor);
  options = write;
  options.alignment = 1 << 16;
  tensor = import(map(DLRO_MAP_READ_ONLY), &options);
  CHECK((tensor->flags & COPIED_FLAG) && (uintptr_t)address_of(tensor) % (1 << 16) == 0);
  dlro_tensor_release(tensor);
  options = write;
  options.copy = DLRO_COPY_ALWAYS;
  tensor = import(map(DLRO_MAP_READ_ONLY), &options);
  CHECK((tensor->flags & COPIED_FLAG) && mappings(PATH) == 0 && memcmp(address_of(tensor), data, LARGE) == 0);
  dlro_tensor_release(tensor);
  {
    /* through the legacy struct */
    DLManagedTensor *legacy;
    tensor = map(DLRO_MAP_READ_ONLY);
    CHECK_STATUS(dlro_legacy_export(tensor, DLRO_LEGACY_REFUSE_READ_ONLY, &legacy), DLRO_ERR_READ_ONLY, "read-only");
    CHECK_OK(dlro_legacy_export(tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy));
    CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_WRITABLE, &write, &tensor));
    CHECK(tensor->flags == 0 && mappings(PATH) == 1);
    memset(writable(tensor), 0, LARGE);
    dlro_tensor_release(tensor);
    CHECK(mappings(PATH) == 0 && file_is(PATH, file.bytes, file.nbytes));
  }
  checked("WRITE with a layout, an alignment, copy=True, and through legacy hops");
  free(file.bytes);

  /* Small: a copy is cheaper than a page fault. */
  write_text(FLOATS_2_3, floats, sizeof floats);
  tensor = import(map(DLRO_MAP_READ_ONLY), &write);
  CHECK(tensor->flags == COPIED_FLAG && mappings(PATH) == 0 && open_files() == before);
  memset(writable(tensor), 0, sizeof floats);
  dlro_tensor_release(tensor);
  tensor = map(DLRO_MAP_READ_ONLY);
  CHECK(memcmp(address_of(tensor), floats, sizeof floats) == 0);
  dlro_tensor_release(tensor);
  write_text("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", NULL, 0);
  tensor = import(map(DLRO_MAP_READ_ONLY), &write);
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_WRITABLE);
  dlro_tensor_release(tensor);
  checked("WRITE on a small mapped tensor is a copy");
}

static void immutable_access(void) {
  const struct file file = a_large_file();
  dlro_import_options options = wanting(DLRO_ACCESS_IMMUTABLE);
  struct DLManagedTensorVersioned *tensor, *refused;
  uint32_t mode;
  for (mode = DLRO_MAP_READ_ONLY; mode <= DLRO_MAP_COPY_ON_WRITE; mode++) {
    tensor = map(mode);
    options.copy = DLRO_COPY_NEVER;
    CHECK_STATUS(dlro_tensor_import(tensor, &options, &refused), DLRO_ERR_NOT_IMMUTABLE, "not immutable");
    CHECK(refused == NULL);
    options.copy = DLRO_COPY_IF_NEEDED;
    tensor = import(tensor, &options);
    CHECK(tensor->flags == (COPIED_FLAG | READ_ONLY_FLAG) && mappings(PATH) == 0);
    CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_IMMUTABLE);
    CHECK(memcmp(address_of(tensor), file.bytes + file.header, LARGE) == 0);
    dlro_tensor_release(tensor);
  }
  free(file.bytes);
  checked("a mapped file is never immutable: whoever can write the file can change it");
}

static void copy_on_write(void) {
  const struct file file = a_large_file();
  const dlro_import_options write = wanting(DLRO_ACCESS_WRITE);
  struct DLManagedTensorVersioned *first = map(DLRO_MAP_COPY_ON_WRITE), *second = map(DLRO_MAP_COPY_ON_WRITE);
  struct DLManagedTensorVersioned *view;
  uint8_t *mine = (uint8_t *)writable(first);
  memset(mine, 0xaa, LARGE);
  CHECK(memcmp(address_of(second), file.bytes + file.header, LARGE) == 0);
  CHECK(file_is(PATH, file.bytes, file.nbytes));
  CHECK(import(first, &write) == first);
  CHECK_OK(dlro_tensor_share(first, DLRO_MUTABILITY_READ_ONLY, NULL, &view));
  view = import(view, &write); /* its pages differ from the file's: no second mapping of the file would do */
  CHECK((view->flags & COPIED_FLAG) && memcmp(address_of(view), mine, LARGE) == 0);
  dlro_tensor_release(view);
  dlro_tensor_release(first);
  dlro_tensor_release(second);
  CHECK(mappings(PATH) == 0 && file_is(PATH, file.bytes, file.nbytes));
  free(file.bytes);
  checked("copy-on-write: each mapping has its own pages, the file never changes, and copies have what was written");
}

static void deleted(void) {
  const struct file file = a_large_file();
  const dlro_import_options write = wanting(DLRO_ACCESS_WRITE);
  struct DLManagedTensorVersioned *tensor = map(DLRO_MAP_READ_ONLY);
  struct DLManagedTensorVersioned *other;
  CHECK(unlink(PATH) == 0);
  CHECK_STATUS(dlro_npy_map(PATH, 0, &other), DLRO_ERR_IO, "No such file");
  CHECK(memcmp(address_of(tensor), file.bytes + file.header, LARGE) == 0);
  write_text(FLOATS_2_3, floats, sizeof floats); /* another file of that name */
  tensor = import(tensor, &write);
  CHECK(!(tensor->flags & COPIED_FLAG) && memcmp(address_of(tensor), file.bytes + file.header, LARGE) == 0);
  memset(writable(tensor), 1, LARGE);
  dlro_tensor_release(tensor);
  other = map(DLRO_MAP_READ_ONLY);
  CHECK(memcmp(address_of(other), floats, sizeof floats) == 0);
  dlro_tensor_release(other);
  free(file.bytes);
  checked("a file that was deleted while mapped is still there, for WRITE too, whatever has its name now");
}

static void huge(void) {
  struct file file = a_file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,), }", 64, NULL, 0);
  struct DLManagedTensorVersioned *tensor;
  struct rusage before, after;
  write_bytes(PATH, file.bytes, file.nbytes);
  CHECK(truncate(PATH, (off_t)file.nbytes + ((off_t)1 << 30)) == 0);
  CHECK(getrusage(RUSAGE_SELF, &before) == 0);
  tensor = map(DLRO_MAP_READ_ONLY);
  CHECK(((const double *)address_of(tensor))[134217727] == 0);
  dlro_tensor_release(tensor);
  CHECK(getrusage(RUSAGE_SELF, &after) == 0);
  CHECK(after.ru_maxrss - before.ru_maxrss < 64 * 1024); /* KiB: nothing was read but the header and one page */
  free(file.bytes);
  checked("a file of 1 GiB is mapped without being read");
}

int main(void) {
  char folder[] = "dlro-files-XXXXXX"; /* the drivers run this program three times at once */
  CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
  both_modes();
  read_only_is_read_only();
  fork_and_release();
  not_inherited_by_exec();
  shapes_and_orders();
  dtypes();
  versions_and_offsets();
  truncated();
  corrupt();
  claims();
  other_files();
  write_access();
  immutable_access();
  copy_on_write();
  deleted();
  huge();
  CHECK(unlink(PATH) == 0 && chdir("..") == 0 && rmdir(folder) == 0);
  return 0;
}
