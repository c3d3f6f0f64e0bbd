/* Rules unload and two copies: a second library under another name, closed while its tensors live. */
#include "producer.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The functions of the copy. */
static struct {
  void *handle;
  int32_t (*create)(const DLTensor *, Tensor **);
  int32_t (*export)(const DLTensor *, uint64_t, uint32_t, void *, void (*)(void *), Tensor **);
  int32_t (*share)(const Tensor *, uint32_t, const DLTensor *, Tensor **);
  int32_t (*import)(Tensor *, const dlro_import_options *, Tensor **);
  int32_t (*freeze)(Tensor *);
  uint32_t (*mutability)(const Tensor *);
  void (*release)(Tensor *);
  const char *(*message)(void);
  int32_t (*legacy_export)(Tensor *, uint32_t, DLManagedTensor **);
} copy;

static void find(const char *name, void *function) {
  /* POSIX: a pointer to a function fits in a void *; ISO C has no cast for it. */
  void *const symbol = dlsym(copy.handle, name);
  CHECK(symbol != NULL);
  memcpy(function, &symbol, sizeof symbol);
}

static void copy_file(const char *from, const char *to) {
  char buffer[65536];
  ssize_t n;
  const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
  CHECK(in >= 0 && out >= 0);
  while ((n = read(in, buffer, sizeof buffer)) > 0) CHECK(write(out, buffer, (size_t)n) == n);
  CHECK(n == 0 && close(in) == 0 && close(out) == 0);
}

static int released;
static Tensor *after_main;

static void at_exit(void) {
  after_main->deleter(after_main);
  if (released != 4) {
    fprintf(stderr, "released %d in atexit, expected 4\n", released);
    _exit(1);
  }
}

int main(void) {
  float memory[4] = {1, 2, 3, 4};
  int64_t shape[1] = {4};
  DLTensor layout = describe(memory, dtype(kDLFloat, 32, 1), 1, shape, NULL);
  dlro_import_options adopt = DLRO_IMPORT_OPTIONS_INIT, immutable = DLRO_IMPORT_OPTIONS_INIT;
  DLManagedTensor *legacy;
  Tensor *theirs, *ours, *out, *share, *left[3];
  Dl_info where;
  char path[64];
  uint32_t (*const version)(void) = dlro_version;
  void *address, *again;
  memcpy(&address, &version, sizeof address);
  CHECK(dladdr(address, &where) != 0);
  snprintf(path, sizeof path, "./another_dlpack_ro_%ld.so", (long)getpid());
  copy_file(where.dli_fname, path);
  copy.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (copy.handle == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(copy.handle != NULL);
  find("dlro_tensor_new", &copy.create);
  find("dlro_tensor_export", &copy.export);
  find("dlro_tensor_share", &copy.share);
  find("dlro_tensor_import", &copy.import);
  find("dlro_tensor_freeze", &copy.freeze);
  find("dlro_tensor_mutability", &copy.mutability);
  find("dlro_tensor_release", &copy.release);
  find("dlro_last_error_message", &copy.message);
  find("dlro_legacy_export", &copy.legacy_export);
  CHECK(copy.release != dlro_tensor_release);
  checked("a copy of the library under another name is loaded as another library");

  adopt.flags = DLRO_IMPORT_ADOPT;
  immutable.access = DLRO_ACCESS_IMMUTABLE, immutable.copy = DLRO_COPY_NEVER;
  CHECK(copy.export(&layout, 0, DLRO_MUTABILITY_IMMUTABLE, &released, count_release, &theirs) == DLRO_OK);
  CHECK(copy.mutability(theirs) == DLRO_MUTABILITY_IMMUTABLE);
  CHECK(dlro_tensor_mutability(theirs) == DLRO_MUTABILITY_READ_ONLY);
  CHECK_REFUSED(out, dlro_tensor_share(theirs, DLRO_MUTABILITY_READ_ONLY, NULL, &out), DLRO_ERR_ARGUMENT, "not made by");
  CHECK_STATUS(dlro_tensor_freeze(theirs), DLRO_ERR_ARGUMENT, "not made by this library");
  CHECK_REFUSED(out, dlro_tensor_import(theirs, &immutable, &out), DLRO_ERR_NOT_IMMUTABLE, "another library made");
  CHECK_OK(dlro_tensor_import(theirs, &adopt, &ours));
  CHECK(ours != theirs && dlro_tensor_mutability(ours) == DLRO_MUTABILITY_READ_ONLY);
  CHECK(copy.mutability(ours) == DLRO_MUTABILITY_READ_ONLY);
  CHECK(copy.share(ours, DLRO_MUTABILITY_READ_ONLY, NULL, &out) == DLRO_ERR_ARGUMENT && out == NULL);
  CHECK(strstr(copy.message(), "not made by this library") != NULL);
  CHECK(strcmp(copy.message(), dlro_last_error_message()) != 0);
  CHECK(copy.import(ours, &adopt, &theirs) == DLRO_OK && theirs != ours);
  CHECK(released == 0);
  CHECK_OK(dlro_tensor_import(theirs, NULL, &out));
  dlro_tensor_release(out);
  CHECK(released == 1);
  checked("rule two copies: each treats the other's tensors as foreign, adopts them, and releases them through each other");

  CHECK(copy.create(&layout, &theirs) == DLRO_OK);
  CHECK_OK(dlro_tensor_import(theirs, NULL, &out));
  CHECK(out == theirs && is_writable(out));
  CHECK_OK(dlro_tensor_import(theirs, &adopt, &ours));
  CHECK_STATUS(dlro_tensor_freeze(ours), DLRO_ERR_NOT_IMMUTABLE, "lent it");
  dlro_tensor_release(ours);

  CHECK(copy.export(&layout, 0, DLRO_MUTABILITY_IMMUTABLE, &released, count_release, &theirs) == DLRO_OK);
  CHECK(copy.legacy_export(theirs, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &legacy) == DLRO_OK);

  CHECK(legacy->dl_tensor.data == memory);
  CHECK_OK(dlro_legacy_import(legacy, DLRO_MUTABILITY_READ_ONLY, NULL, &ours));
  CHECK(!is_writable(ours) && released == 1);
  dlro_tensor_release(ours);
  CHECK(released == 2);
  checked("rule two copies: rights across them, versioned and legacy");

  /* Case B11: nothing but tensors is left of the copy. */
  CHECK(copy.create(&layout, &left[0]) == DLRO_OK);
  CHECK(copy.export(&layout, 0, DLRO_MUTABILITY_WRITABLE, &released, count_release, &left[1]) == DLRO_OK);
  CHECK(copy.share(left[1], DLRO_MUTABILITY_READ_ONLY, NULL, &left[2]) == DLRO_OK);
  CHECK(copy.export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, count_release, &after_main) == DLRO_OK);
  CHECK_OK(dlro_tensor_import(left[1], &adopt, &share) /* of theirs, in ours */);
  CHECK(dlclose(copy.handle) == 0);
  memset(&copy, 0, sizeof copy);
  left[0]->deleter(left[0]);
  dlro_tensor_release(left[2]);
  CHECK(released == 2);
  dlro_tensor_release(share);
  CHECK(released == 3);
  again = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  CHECK(again != NULL); /* -z nodelete: it is still there */
  CHECK(dlclose(again) == 0 && unlink(path) == 0);
  CHECK(atexit(at_exit) == 0);
  checked("case B11, rule unload: tensors outlive dlclose, and are released after it and after main");
  return 0;
}
