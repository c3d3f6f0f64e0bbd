/* Every function that allocates, with its 1st, 2nd, ... allocation failing.

   This program replaces malloc and mmap, so neither valgrind nor ASan can run it; it counts leaks on its own. */
#include "foreign_legacy.h"
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COPIED_FLAG ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)

/* --- the allocator --- */

extern void *__libc_malloc(size_t nbytes);
extern void *__libc_calloc(size_t count, size_t nbytes);
extern void *__libc_realloc(void *block, size_t nbytes);
extern void *__libc_memalign(size_t alignment, size_t nbytes);
extern void __libc_free(void *block);

static atomic_long live;      /* allocations and mappings that were not given back */
static atomic_int calls;      /* since `arm` */
static atomic_int failed;     /* since `arm` */
static atomic_int fail_at;    /* the first call to fail; 0 for none */
static atomic_bool once;      /* that one only, or all from there on */
static atomic_bool listening; /* the calls are the library's */

static bool refuse_this(void) {
  int call;
  if (!listening) return false;
  call = ++calls;
  if (fail_at == 0 || call < fail_at || (once && call > fail_at)) return false;
  failed++;
  errno = ENOMEM;
  return true;
}

static void *counted(void *block) {
  if (block != NULL) live++;
  return block;
}

void *malloc(size_t nbytes) { return refuse_this() ? NULL : counted(__libc_malloc(nbytes)); }

void *calloc(size_t count, size_t nbytes) { return refuse_this() ? NULL : counted(__libc_calloc(count, nbytes)); }

void *memalign(size_t alignment, size_t nbytes) {
  return refuse_this() ? NULL : counted(__libc_memalign(alignment, nbytes));
}

void *aligned_alloc(size_t alignment, size_t nbytes) { return memalign(alignment, nbytes); }

int posix_memalign(void **out, size_t alignment, size_t nbytes) {
  void *block = memalign(alignment, nbytes);
  if (block == NULL) return ENOMEM;
  *out = block;
  return 0;
}

void *realloc(void *block, size_t nbytes) {
  if (block == NULL) return malloc(nbytes);
  return refuse_this() ? NULL : __libc_realloc(block, nbytes);
}

void free(void *block) {
  if (block != NULL) live--;
  __libc_free(block);
}

void *mmap(void *address, size_t nbytes, int protection, int flags, int file, off_t offset) {
  void *mapping;
  if (refuse_this()) return MAP_FAILED;
  mapping = (void *)syscall(SYS_mmap, address, nbytes, protection, flags, file, offset);
  if (mapping != MAP_FAILED) live++;
  return mapping;
}

void *mmap64(void *address, size_t nbytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, nbytes, protection, flags, file, offset);
}

int munmap(void *address, size_t nbytes) {
  const int result = (int)syscall(SYS_munmap, address, nbytes);
  if (result == 0) live--;
  return result;
}

static void arm(int first, bool only) {
  calls = failed = 0;
  fail_at = first;
  once = only;
  listening = true;
}

static void disarm(void) { listening = false; }

/* --- what the operations work on --- */

struct scene {
  struct DLManagedTensorVersioned *tensor, *other, *out;
  DLManagedTensor *legacy, *legacy_out;
  dlro_exported exported;
  struct dlro_buffer *buffer, *buffer_out;
  struct dlro_watch *watch;
  dlro_archive *archive, *archive_out;
  int fd;      /* an input */
  int fd_out;
  int ended;   /* by a deleter or a release */
};

enum output { OUT, LEGACY, EXPORTED, BUFFER, WATCH, ARCHIVE, FD, NOTHING };

struct operation {
  const char *name;
  void (*prepare)(struct scene *);
  int32_t (*act)(struct scene *);
  enum output output;
  bool consumes;   /* its tensor or legacy tensor, on success */
  bool falls_back; /* a failed mapping is made good by a copy */
};

static float values[64 * 64];
static int64_t shape[2] = {64, 64}, transposed[2] = {1, 64}, row_major[2] = {64, 1};
static const char PATH[] = "out-of-memory.npy";
static char path[128], archive_path[128], saved_path[128];

static DLTensor layout_of(int64_t *strides) { return host_tensor(values, FLOAT32, 2, shape, strides); }

static void foreign(struct scene *scene) {
  scene->tensor = foreign_versioned(layout_of(row_major), 0, 0, &scene->ended);
}

static void foreign_read_only(struct scene *scene) {
  scene->tensor = foreign_versioned(layout_of(row_major), 0, DLPACK_FLAG_BITMASK_READ_ONLY, &scene->ended);
}

static void foreign_transposed(struct scene *scene) {
  scene->tensor = foreign_versioned(layout_of(transposed), 0, 0, &scene->ended);
}

static void foreign_without_strides(struct scene *scene) {
  scene->tensor = foreign_versioned(layout_of(NULL), 3, 0, &scene->ended);
}

static void foreign_copied(struct scene *scene) {
  scene->tensor = foreign_versioned(layout_of(row_major), 0, COPIED_FLAG, &scene->ended);
}

static void foreign_packed(struct scene *scene) {
  DLTensor layout = layout_of(transposed);
  layout.dtype.code = kDLFloat4_e2m1fn;
  layout.dtype.bits = 4;
  scene->tensor = foreign_versioned(layout, 1, 0, &scene->ended);
}

/* Neither row-major nor column-major: every second column. */
static void foreign_strided(struct scene *scene) {
  static int64_t half[2] = {64, 32}, every_second[2] = {64, 2};
  scene->tensor = foreign_versioned(host_tensor(values, FLOAT32, 2, half, every_second), 0, 0, &scene->ended);
}

static void foreign_large(struct scene *scene) {
  static double many[1024 * 512];
  int64_t large[2] = {512, 1024}, strides[2] = {1, 512};
  DLTensor layout = host_tensor(many, FLOAT32, 2, large, strides);
  layout.dtype.bits = 64;
  scene->tensor = foreign_versioned(layout, 0, 0, &scene->ended);
}

static void foreign_overlapping(struct scene *scene) {
  DLTensor layout = layout_of(row_major);
  foreign_transposed(scene);
  scene->other = foreign_versioned(layout, 0, 0, &scene->ended);
  /* Both count into one counter, so the other one counts nowhere. */
  static int elsewhere;
  ((struct foreign_context *)scene->other->manager_ctx)->deleted = &elsewhere;
}

static void ours(struct scene *scene) {
  const DLTensor layout = layout_of(NULL);
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_WRITABLE, &scene->ended, count_release, &scene->tensor));
}

static void ours_read_only(struct scene *scene) {
  const DLTensor layout = layout_of(NULL);
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &scene->ended, count_release, &scene->tensor));
}

static void foreign_legacy_tensor(struct scene *scene) {
  scene->legacy = foreign_legacy(layout_of(NULL), &scene->ended);
}

static void own_legacy_tensor(struct scene *scene) {
  foreign(scene);
  CHECK_OK(dlro_legacy_export(scene->tensor, 0, &scene->legacy));
  scene->tensor = NULL;
}

static void nothing(struct scene *scene) { (void)scene; }

static void mapped(struct scene *scene) { CHECK_OK(dlro_npy_map(path, DLRO_MAP_READ_ONLY, &scene->tensor)); }

static void an_archive(struct scene *scene) {
  CHECK_OK(dlro_safetensors_map(archive_path, DLRO_MAP_READ_ONLY, &scene->archive));
}

/* Over a file that somebody else mapped, large enough that the library looks for it in the process's map table. */
static uint8_t *foreign_mapping;
enum { FOREIGN_MAPPING = 8 << 20 };

static void foreign_mapped(struct scene *scene) {
  int64_t length[1] = {FOREIGN_MAPPING};
  const DLTensor layout = host_tensor(foreign_mapping, UINT8, 1, length, NULL);
  scene->tensor = foreign_versioned(layout, 0, DLPACK_FLAG_BITMASK_READ_ONLY, &scene->ended);
}

static void a_buffer(struct scene *scene) { CHECK_OK(dlro_buffer_new(sizeof values, &scene->buffer)); }

static void a_sealed_file(struct scene *scene) {
  foreign(scene);
  CHECK_OK(dlro_tensor_seal(scene->tensor, &scene->fd));
}

/* --- the operations --- */

static int32_t import(struct scene *scene, uint32_t access, uint32_t copy, uint32_t layout, uint32_t flags) {
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  options.access = access;
  options.copy = copy;
  options.layout = layout;
  options.flags = flags;
  if (scene->legacy != NULL) {
    return (int32_t)dlro_legacy_import(scene->legacy, DLRO_MUTABILITY_READ_ONLY, &options, &scene->out);
  }
  return (int32_t)dlro_tensor_import(scene->tensor, &options, &scene->out);
}

static int32_t import_any(struct scene *scene) { return import(scene, 0, 0, 0, 0); }
static int32_t import_adopting(struct scene *scene) { return import(scene, 0, 0, 0, DLRO_IMPORT_ADOPT); }
static int32_t import_row_major(struct scene *scene) { return import(scene, 0, 0, DLRO_LAYOUT_ROW_MAJOR, 0); }
static int32_t import_column_major(struct scene *scene) { return import(scene, 0, 0, DLRO_LAYOUT_COLUMN_MAJOR, 0); }
static int32_t import_to_write(struct scene *scene) { return import(scene, DLRO_ACCESS_WRITE, 0, 0, 0); }
static int32_t import_immutable(struct scene *scene) { return import(scene, DLRO_ACCESS_IMMUTABLE, 0, 0, 0); }
static int32_t import_copying(struct scene *scene) { return import(scene, 0, DLRO_COPY_ALWAYS, 0, 0); }
static int32_t import_copying_immutable(struct scene *scene) {
  return import(scene, DLRO_ACCESS_IMMUTABLE, DLRO_COPY_ALWAYS, 0, 0);
}

static int32_t export(struct scene *scene) {
  const DLTensor layout = layout_of(NULL);
  return (int32_t)dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_WRITABLE, &scene->ended, count_release, &scene->out);
}

static int32_t new(struct scene *scene) {
  const DLTensor prototype = layout_of(NULL);
  return (int32_t)dlro_tensor_new(&prototype, &scene->out);
}

static int set_error_calls;
static bool memory_error;

static void set_error(void *context, const char *kind, const char *message) {
  (void)context;
  set_error_calls++;
  memory_error = strcmp(kind, "MemoryError") == 0 && strstr(message, "bytes failed") != NULL;
}

static int32_t allocator(struct scene *scene) {
  DLTensor prototype = layout_of(NULL);
  set_error_calls = 0;
  memory_error = false;
  if (dlro_managed_tensor_allocator(&prototype, &scene->out, NULL, set_error) == 0) {
    return set_error_calls == 0 ? DLRO_OK : DLRO_ERR_INTERNAL;
  }
  return set_error_calls == 1 && memory_error ? DLRO_ERR_NO_MEMORY : DLRO_ERR_INTERNAL;
}

static int32_t share(struct scene *scene) {
  return (int32_t)dlro_tensor_share(scene->tensor, DLRO_MUTABILITY_WRITABLE, NULL, &scene->out);
}

static int32_t share_window(struct scene *scene) {
  int64_t part[2] = {3, 5}, strides[2] = {-64, 2};
  DLTensor window = host_tensor(NULL, FLOAT32, 2, part, strides);
  window.byte_offset = 128 * sizeof(float);
  return (int32_t)dlro_tensor_share(scene->tensor, DLRO_MUTABILITY_READ_ONLY, &window, &scene->out);
}

static int32_t to_legacy(struct scene *scene) {
  return (int32_t)dlro_legacy_export(scene->tensor, DLRO_LEGACY_CONSUMER_NEVER_WRITES, &scene->legacy_out);
}

static int32_t answer(struct scene *scene, uint32_t major, uint32_t copy, uint32_t flags) {
  const DLPackVersion max_version = {major, 0};
  dlro_export_options options = DLRO_EXPORT_OPTIONS_INIT;
  options.copy = copy;
  options.flags = flags;
  return (int32_t)dlro_tensor_export_for(scene->tensor, &max_version, &options, &scene->exported);
}

static int32_t answer_legacy(struct scene *scene) { return answer(scene, 0, 0, 0); }
static int32_t answer_versioned(struct scene *scene) { return answer(scene, 1, 0, 0); }
static int32_t answer_folded(struct scene *scene) { return answer(scene, 1, 0, DLRO_EXPORT_FOLD_BYTE_OFFSET); }
static int32_t answer_copied(struct scene *scene) { return answer(scene, 1, DLRO_COPY_ALWAYS, 0); }
static int32_t answer_legacy_copied(struct scene *scene) {
  return answer(scene, 0, DLRO_COPY_ALWAYS, DLRO_EXPORT_FOLD_BYTE_OFFSET);
}

static int32_t copy(struct scene *scene) { return (int32_t)dlro_tensor_copy(scene->tensor, &scene->out); }

static int32_t copy_over_itself(struct scene *scene) {
  return (int32_t)dlro_tensor_copy_into(scene->tensor, scene->other);
}

static int32_t map_read_only(struct scene *scene) {
  return (int32_t)dlro_npy_map(path, DLRO_MAP_READ_ONLY, &scene->out);
}

static int32_t map_copy_on_write(struct scene *scene) {
  return (int32_t)dlro_npy_map(path, DLRO_MAP_COPY_ON_WRITE, &scene->out);
}

static int32_t map_archive(struct scene *scene) {
  return (int32_t)dlro_safetensors_map(archive_path, DLRO_MAP_READ_ONLY, &scene->archive_out);
}

static int32_t archive_tensor(struct scene *scene) {
  return (int32_t)dlro_archive_tensor(scene->archive, 0, &scene->out);
}

static int32_t save_npy(struct scene *scene) { return (int32_t)dlro_npy_save(saved_path, scene->tensor); }

static int32_t save_archive(struct scene *scene) {
  const char *const names[] = {"a", "b"}, *const keys[] = {"k"};
  const struct DLManagedTensorVersioned *const tensors[] = {scene->tensor, scene->tensor};
  return (int32_t)dlro_safetensors_save(saved_path, 2, names, tensors, 1, keys, keys);
}

static int32_t buffer_new(struct scene *scene) { return (int32_t)dlro_buffer_new(100000, &scene->buffer_out); }

static int32_t buffer_wrap(struct scene *scene) {
  return (int32_t)dlro_buffer_wrap(values, sizeof values, DLRO_MUTABILITY_WRITABLE, 0, &scene->ended, count_release,
                                   &scene->buffer_out);
}

static int32_t buffer_map(struct scene *scene) {
  return (int32_t)dlro_buffer_map(path, 7, 0, DLRO_MAP_READ_ONLY, &scene->buffer_out);
}

static int32_t buffer_import(struct scene *scene) {
  return (int32_t)dlro_buffer_import(scene->tensor, &scene->buffer_out);
}

static int32_t buffer_export(struct scene *scene) {
  const DLTensor window = host_tensor(NULL, FLOAT32, 2, shape, NULL);
  return (int32_t)dlro_buffer_export(scene->buffer, &window, DLRO_MUTABILITY_WRITABLE, &scene->out);
}

static int32_t seal(struct scene *scene) { return (int32_t)dlro_tensor_seal(scene->tensor, &scene->fd_out); }

static int32_t sealed_import(struct scene *scene) { return (int32_t)dlro_sealed_import(scene->fd, &scene->out); }

static int32_t watch(struct scene *scene) { return (int32_t)dlro_guard_watch(scene->tensor, "label", &scene->watch); }

static const struct operation operations[] = {
    {"dlro_tensor_export", nothing, export, OUT, false, false},
    {"dlro_tensor_new", nothing, new, OUT, false, false},
    {"dlro_managed_tensor_allocator", nothing, allocator, OUT, false, false},
    {"dlro_tensor_import, adopting", foreign, import_adopting, OUT, true, false},
    {"dlro_tensor_import, without strides", foreign_without_strides, import_any, OUT, true, false},
    {"dlro_tensor_import, copying", foreign, import_copying, OUT, true, false},
    {"dlro_tensor_import, copying ours", ours, import_copying, OUT, true, false},
    {"dlro_tensor_import, copying to immutable", foreign, import_copying_immutable, OUT, true, false},
    {"dlro_tensor_import, WRITE on read-only", foreign_read_only, import_to_write, OUT, true, false},
    {"dlro_tensor_import, IMMUTABLE on writable", foreign, import_immutable, OUT, true, false},
    {"dlro_tensor_import, IMMUTABLE on a producer's copy", foreign_copied, import_immutable, OUT, true, false},
    {"dlro_tensor_import, row-major", foreign_transposed, import_row_major, OUT, true, false},
    {"dlro_tensor_import, column-major", foreign, import_column_major, OUT, true, false},
    {"dlro_tensor_import, row-major and large", foreign_large, import_row_major, OUT, true, false},
    {"dlro_tensor_import, WRITE on a mapped file", mapped, import_to_write, OUT, true, true},
    {"dlro_tensor_import, WRITE on a foreign mapped file", foreign_mapped, import_to_write, OUT, true, true},
    {"dlro_tensor_share", ours, share, OUT, false, false},
    {"dlro_tensor_share, a window", ours, share_window, OUT, false, false},
    {"dlro_legacy_import", foreign_legacy_tensor, import_any, OUT, true, false},
    {"dlro_legacy_import, copying", foreign_legacy_tensor, import_to_write, OUT, true, false},
    {"dlro_legacy_import of our own", own_legacy_tensor, import_any, OUT, true, false},
    {"dlro_legacy_import of our own, copying", own_legacy_tensor, import_copying, OUT, true, false},
    {"dlro_legacy_export", ours_read_only, to_legacy, LEGACY, true, false},
    {"dlro_legacy_export, without strides", foreign_without_strides, to_legacy, LEGACY, true, false},
    {"dlro_tensor_export_for, legacy", ours, answer_legacy, EXPORTED, true, false},
    {"dlro_tensor_export_for, without strides", foreign_without_strides, answer_versioned, EXPORTED, true, false},
    {"dlro_tensor_export_for, folded", foreign, answer_folded, EXPORTED, true, false},
    {"dlro_tensor_export_for, copied", foreign_transposed, answer_copied, EXPORTED, true, false},
    {"dlro_tensor_export_for, copied to legacy", ours, answer_legacy_copied, EXPORTED, true, false},
    {"dlro_tensor_copy", foreign, copy, OUT, false, false},
    {"dlro_tensor_copy, transposed", foreign_transposed, copy, OUT, false, false},
    {"dlro_tensor_copy, packed", foreign_packed, copy, OUT, false, false},
    {"dlro_tensor_copy, large", foreign_large, copy, OUT, false, false},
    {"dlro_tensor_copy_into, overlapping", foreign_overlapping, copy_over_itself, NOTHING, false, false},
    {"dlro_npy_map, read-only", nothing, map_read_only, OUT, false, false},
    {"dlro_npy_map, copy-on-write", nothing, map_copy_on_write, OUT, false, false},
    {"dlro_safetensors_map", nothing, map_archive, ARCHIVE, false, false},
    {"dlro_archive_tensor", an_archive, archive_tensor, OUT, false, false},
    {"dlro_npy_save, strided", foreign_strided, save_npy, NOTHING, false, false},
    {"dlro_safetensors_save", foreign_transposed, save_archive, NOTHING, false, false},
    {"dlro_buffer_new", nothing, buffer_new, BUFFER, false, false},
    {"dlro_buffer_wrap", nothing, buffer_wrap, BUFFER, false, false},
    {"dlro_buffer_map", nothing, buffer_map, BUFFER, false, false},
    {"dlro_buffer_import", foreign, buffer_import, BUFFER, true, false},
    {"dlro_buffer_export", a_buffer, buffer_export, OUT, false, false},
    {"dlro_tensor_seal", foreign, seal, FD, false, false},
    {"dlro_tensor_seal, transposed", foreign_transposed, seal, FD, false, false},
    {"dlro_sealed_import", a_sealed_file, sealed_import, OUT, false, false},
    {"dlro_guard_watch", mapped, watch, WATCH, false, false},
};

/* --- driving them --- */

static void **output_of(struct scene *scene, enum output output) {
  switch (output) {
    case OUT: return (void **)(void *)&scene->out;
    case LEGACY: return (void **)(void *)&scene->legacy_out;
    case EXPORTED: return (void **)(void *)&scene->exported.versioned;
    case BUFFER: return (void **)(void *)&scene->buffer_out;
    case ARCHIVE: return (void **)(void *)&scene->archive_out;
    case WATCH: return (void **)(void *)&scene->watch;
    default: return NULL;
  }
}

static int open_files(void) {
  int fd, count = 0;
  for (fd = 0; fd < 64; fd++) count += dup2(fd, fd) == fd;
  return count;
}

static void prepare(const struct operation *operation, struct scene *scene) {
  memset(scene, 0, sizeof *scene);
  scene->fd = scene->fd_out = -1;
  operation->prepare(scene);
  CHECK(scene->ended == 0);
}

static int32_t act(const struct operation *operation, struct scene *scene, int first, bool only) {
  void **output = output_of(scene, operation->output);
  int32_t status;
  if (output != NULL) *output = STALE(void);
  if (operation->output == EXPORTED) memset(&scene->exported, 0x5a, sizeof scene->exported);
  if (operation->output == FD) scene->fd_out = 12345;
  arm(first, only);
  status = operation->act(scene);
  disarm();
  return status;
}

/* Ends whatever belongs to the caller now; says whether inputs with a deleter were there. */
static void end(const struct operation *operation, struct scene *scene, bool succeeded) {
  if (succeeded && operation->consumes) {
    scene->tensor = NULL;
    scene->legacy = NULL;
  }
  dlro_tensor_release(scene->out);
  dlro_tensor_release(scene->tensor);
  dlro_tensor_release(scene->other);
  dlro_tensor_release(scene->exported.versioned);
  if (scene->legacy != NULL) scene->legacy->deleter(scene->legacy);
  if (scene->legacy_out != NULL) scene->legacy_out->deleter(scene->legacy_out);
  if (scene->exported.legacy != NULL) scene->exported.legacy->deleter(scene->exported.legacy);
  dlro_watch_release(scene->watch);
  dlro_archive_release(scene->archive_out);
  dlro_archive_release(scene->archive);
  dlro_buffer_release(scene->buffer_out);
  dlro_buffer_release(scene->buffer);
  if (scene->fd >= 0) close(scene->fd);
  if (scene->fd_out >= 0) close(scene->fd_out);
}

static bool counts(const struct operation *operation) {
  return operation->prepare != nothing && operation->prepare != mapped && operation->prepare != a_buffer &&
         operation->prepare != an_archive;
}

static bool hands_over_an_owner(const struct operation *operation) {
  return operation->act == export || operation->act == buffer_wrap;
}

static void check_failure(const struct operation *operation, struct scene *scene, int first) {
  void **output = output_of(scene, operation->output);
  CHECK(scene->ended == 0); /* nothing was consumed */
  CHECK(output == NULL || *output == NULL);
  if (operation->output == EXPORTED) CHECK(scene->exported.legacy == NULL && scene->exported.capsule_name == NULL);
  if (operation->output == FD) CHECK(scene->fd_out == -1);
  CHECK(strstr(dlro_last_error_message(), "bytes failed") != NULL);
  /* Nothing is asked for after a refusal, for the error least of all. */
  if (!operation->falls_back) CHECK(calls == first && failed == 1);
}

static int check_operation(const struct operation *operation, bool only) {
  const int files = open_files();
  int first, failures = 0;
  for (first = 1;; first++) {
    struct scene scene;
    const long before = live;
    long prepared;
    int32_t status;
    bool ran_out;
    prepare(operation, &scene);
    prepared = live;
    status = act(operation, &scene, first, only);
    ran_out = failed > 0;
    if (status == DLRO_OK) {
      CHECK(!ran_out || operation->falls_back);
    } else {
      if (status != DLRO_ERR_NO_MEMORY) fprintf(stderr, "%s answered %s\n", operation->name, dlro_status_name(status));
      CHECK(status == DLRO_ERR_NO_MEMORY && ran_out);
      check_failure(operation, &scene, first);
      CHECK(live == prepared);
      failures++;
      if (first % 2 == 0) {
        end(operation, &scene, false); /* the caller gives up */
        CHECK(scene.ended == (counts(operation) ? 1 : 0) && live == before && open_files() == files);
        continue;
      }
      CHECK(act(operation, &scene, 0, false) == DLRO_OK); /* or tries again, with the same tensor */
    }
    end(operation, &scene, true);
    CHECK(scene.ended == (counts(operation) || hands_over_an_owner(operation) ? 1 : 0));
    CHECK(live == before && open_files() == files);
    if (!ran_out) return failures;
  }
}

/* The first failure again, and then the caller gives up. */
static void give_up(const struct operation *operation) {
  struct scene scene;
  const long before = live;
  int32_t status;
  prepare(operation, &scene);
  status = act(operation, &scene, 1, false);
  CHECK(status == DLRO_ERR_NO_MEMORY);
  end(operation, &scene, false);
  CHECK(scene.ended == (counts(operation) ? 1 : 0) && live == before);
}

static void every_operation(void) {
  size_t i;
  for (i = 0; i < sizeof operations / sizeof operations[0]; i++) {
    char name[96];
    const int once_only = check_operation(&operations[i], true), onwards = check_operation(&operations[i], false);
    CHECK(operations[i].falls_back || once_only > 0);
    CHECK(onwards > 0);
    give_up(&operations[i]);
    snprintf(name, sizeof name, "%s: %d allocations", operations[i].name, onwards);
    checked(name);
  }
}

/* --- what must not allocate at all --- */

static void quiet_functions(void) {
  struct scene scene;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  const DLPackVersion one = {1, 0};
  struct DLManagedTensorVersioned *copied;
  const void *data;
  void *writable;
  char text[200];
  uint64_t number;
  int64_t lowest;
  uint32_t bits;
  size_t length;
  bool flag;
  memset(&scene, 0, sizeof scene);
  foreign(&scene);
  CHECK_OK(dlro_tensor_copy(scene.tensor, &copied));
  arm(1, false);
  CHECK_OK(dlro_tensor_validate(scene.tensor));
  CHECK_OK(dlro_tensor_data(scene.tensor, &data));
  CHECK_OK(dlro_tensor_data_mut(scene.tensor, &writable));
  CHECK_OK(dlro_tensor_element_count(scene.tensor, &number));
  CHECK_OK(dlro_tensor_nbytes(scene.tensor, &number));
  CHECK_OK(dlro_tensor_span(scene.tensor, &lowest, &number));
  CHECK_OK(dlro_tensor_is_row_major(scene.tensor, &flag));
  CHECK_OK(dlro_tensor_is_column_major(scene.tensor, &flag));
  CHECK_OK(dlro_tensor_is_overlapping(scene.tensor, &flag));
  CHECK_OK(dlro_tensor_describe(scene.tensor, text, sizeof text, &length));
  CHECK_OK(dlro_dtype_bits(FLOAT32, &bits));
  CHECK_OK(dlro_dtype_describe(FLOAT32, text, sizeof text, &length));
  CHECK(dlro_tensor_mutability(scene.tensor) == DLRO_MUTABILITY_WRITABLE);
  CHECK_OK(dlro_tensor_copy_into(copied, scene.tensor));
  CHECK_OK(dlro_tensor_freeze(copied));
  options.access = DLRO_ACCESS_WRITE;
  options.copy = DLRO_COPY_NEVER;
  CHECK_OK(dlro_tensor_import(scene.tensor, &options, &scene.tensor));
  CHECK_OK(dlro_tensor_export_for(scene.tensor, &one, NULL, &scene.exported));
  CHECK_OK(dlro_guard_install());
  dlro_tensor_release(scene.exported.versioned);
  disarm();
  CHECK_OK(dlro_buffer_import(copied, &scene.buffer));
  arm(1, false);
  CHECK(dlro_buffer_retain(scene.buffer) == scene.buffer);
  CHECK_OK(dlro_buffer_tensor_counts(scene.buffer, &number, &number));
  CHECK_OK(dlro_buffer_freeze(scene.buffer, 0));
  dlro_buffer_release(scene.buffer);
  dlro_buffer_release(scene.buffer);
  disarm();
  CHECK(failed == 0 && scene.ended == 1);
  checked("queries, freezing, aliasing imports, and dense copies into a target ask for no memory");
}

/* --- many failures --- */

static int32_t failing_export(struct scene *scene) {
  DLTensor layout = layout_of(NULL);
  layout.dtype.bits = 7;
  return (int32_t)dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_WRITABLE, &scene->ended, count_release, &scene->out);
}

static int32_t failing_import(struct scene *scene) {
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  options.layout = DLRO_LAYOUT_COLUMN_MAJOR;
  options.copy = DLRO_COPY_NEVER;
  return (int32_t)dlro_tensor_import(scene->tensor, &options, &scene->out);
}

static int32_t failing_options(struct scene *scene) {
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  options.alignment = 3;
  return (int32_t)dlro_legacy_import(scene->legacy, 0, &options, &scene->out);
}

static int32_t failing_legacy_export(struct scene *scene) {
  return (int32_t)dlro_legacy_export(scene->tensor, DLRO_LEGACY_REFUSE_READ_ONLY, &scene->legacy_out);
}

static int32_t failing_negotiation(struct scene *scene) {
  return (int32_t)dlro_tensor_export_for(scene->tensor, NULL, NULL, &scene->exported);
}

static int32_t failing_share(struct scene *scene) {
  return (int32_t)dlro_tensor_share(scene->tensor, DLRO_MUTABILITY_IMMUTABLE, NULL, &scene->out);
}

static int32_t failing_map(struct scene *scene) { return (int32_t)dlro_npy_map("no-such.npy", 0, &scene->out); }

static int32_t failing_copy_into(struct scene *scene) {
  return (int32_t)dlro_tensor_copy_into(scene->tensor, scene->tensor);
}

static void many_failures(void) {
  static const struct {
    const char *name;
    void (*prepare)(struct scene *);
    int32_t (*act)(struct scene *);
    int32_t status;
    int times;
    bool quiet;
  } failing[] = {
      {"case B10: 10^5 exports of a dtype that does not exist", nothing, failing_export, DLRO_ERR_DTYPE, 100000, true},
      {"case B10: 10^5 imports that would need a copy", foreign, failing_import, DLRO_ERR_COPY_NEEDED, 100000, true},
      {"10^4 legacy imports with wrong options", foreign_legacy_tensor, failing_options, DLRO_ERR_ARGUMENT, 10000,
       true},
      {"10^4 legacy exports of a read-only tensor", ours_read_only, failing_legacy_export, DLRO_ERR_READ_ONLY, 10000,
       true},
      {"10^4 negotiations for a read-only tensor", foreign_read_only, failing_negotiation, DLRO_ERR_READ_ONLY, 10000,
       true},
      {"10^4 immutable shares of lent memory", ours, failing_share, DLRO_ERR_NOT_IMMUTABLE, 10000, false},
      {"10^4 files that are not there", nothing, failing_map, DLRO_ERR_IO, 10000, true},
      {"10^4 copies into a read-only tensor", foreign_read_only, failing_copy_into, DLRO_ERR_READ_ONLY, 10000, true},
  };
  size_t i;
  for (i = 0; i < sizeof failing / sizeof failing[0]; i++) {
    struct scene scene;
    const long before = live;
    const int files = open_files();
    long prepared;
    int n, allocated;
    memset(&scene, 0, sizeof scene);
    failing[i].prepare(&scene);
    prepared = live;
    arm(0, false);
    for (n = 0; n < failing[i].times; n++) CHECK(failing[i].act(&scene) == failing[i].status);
    disarm();
    allocated = calls;
    CHECK(live == prepared && scene.ended == 0);
    CHECK(!failing[i].quiet || allocated == 0); /* and the sentences were built without an allocation */
    dlro_tensor_release(scene.tensor);
    if (scene.legacy != NULL) scene.legacy->deleter(scene.legacy);
    CHECK(live == before && open_files() == files);
    CHECK(scene.ended == (failing[i].prepare == nothing ? 0 : 1));
    checked(failing[i].name);
  }
}

/* --- more than there is, and much in a row --- */

static void more_than_there_is(void) {
  int64_t much[1] = {(int64_t)1 << 62};
  DLTensor prototype = host_tensor(NULL, UINT8, 1, much, NULL);
  struct DLManagedTensorVersioned *tensor = STALE(struct DLManagedTensorVersioned);
  struct dlro_buffer *buffer = STALE(struct dlro_buffer);
  const long before = live;
  CHECK_STATUS(dlro_tensor_new(&prototype, &tensor), DLRO_ERR_NO_MEMORY, "an allocation of 4611686018427387904 bytes");
  CHECK(tensor == NULL);
  set_error_calls = 0;
  CHECK(dlro_managed_tensor_allocator(&prototype, &tensor, NULL, set_error) == -1 && set_error_calls == 1);
  CHECK(memory_error && tensor == NULL);
  CHECK_STATUS(dlro_buffer_new(SIZE_MAX / 4, &buffer), DLRO_ERR_NO_MEMORY, "bytes failed");
  CHECK_STATUS(dlro_buffer_new(SIZE_MAX, &buffer), DLRO_ERR_NO_MEMORY, "");
  CHECK(buffer == NULL && live == before);
  {
    /* A broadcast tensor is small, and its copy is not. */
    int64_t zero[1] = {0};
    int ended;
    const DLTensor layout = host_tensor(values, UINT8, 1, much, zero);
    struct DLManagedTensorVersioned *source = foreign_versioned(layout, 0, 0, &ended);
    CHECK_STATUS(dlro_tensor_copy(source, &tensor), DLRO_ERR_NO_MEMORY, "4611686018427387904 bytes");
    CHECK(tensor == NULL && ended == 0);
    dlro_tensor_release(source);
    CHECK(ended == 1 && live == before);
  }
  checked("more memory than there is");
}

static long resident(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss; /* KiB */
}

static void much_in_a_row(void) {
  int64_t four_megabytes[1] = {4 << 20}, half_gigabyte[1] = {512 << 20};
  DLTensor prototype = host_tensor(NULL, UINT8, 1, four_megabytes, NULL);
  const long before = live, before_resident = resident();
  int i;
  for (i = 0; i < 10000; i++) {
    struct DLManagedTensorVersioned *tensor;
    CHECK_OK(dlro_tensor_new(&prototype, &tensor));
    *(volatile char *)tensor->dl_tensor.data = 1;
    CHECK_OK(dlro_tensor_import(tensor, NULL, &tensor));
    dlro_tensor_release(tensor);
  }
  for (i = 0; i < 40; i++) { /* copies end their source at once */
    struct DLManagedTensorVersioned *tensor;
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    options.copy = DLRO_COPY_ALWAYS;
    CHECK_OK(dlro_tensor_new(&prototype, &tensor));
    CHECK_OK(dlro_tensor_import(tensor, &options, &tensor));
    dlro_tensor_release(tensor);
  }
  prototype.shape = half_gigabyte;
  for (i = 0; i < 100; i++) {
    struct DLManagedTensorVersioned *tensor, *view;
    DLManagedTensor *legacy;
    CHECK_OK(dlro_tensor_new(&prototype, &tensor));
    CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, NULL, &view));
    CHECK_OK(dlro_legacy_export(tensor, 0, &legacy));
    legacy->deleter(legacy);
    dlro_tensor_release(view);
  }
  CHECK(live == before && resident() - before_resident < 64 * 1024);
  checked("cases B3, B14: 10^4 times 4 MiB, 40 copies, 100 times 512 MiB: nothing stays behind");
}

static void write_file(void) {
  /* 1 MiB, which is worth a mapping */
  static uint8_t file[128 + (1 << 20)];
  static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (1048576,), }";
  const char *const name = "w";
  const struct DLManagedTensorVersioned *tensor;
  struct scene scene;
  FILE *stream;
  memset(&scene, 0, sizeof scene);
  memcpy(file, "\x93NUMPY\1\0\x76\0", 10);
  memset(file + 10, ' ', 118);
  memcpy(file + 10, header, sizeof header - 1);
  file[127] = '\n';
  snprintf(path, sizeof path, "%ld-%s", (long)getpid(), PATH);
  stream = fopen(path, "wb");
  CHECK(stream != NULL && fwrite(file, 1, sizeof file, stream) == sizeof file && fclose(stream) == 0);
  snprintf(archive_path, sizeof archive_path, "%ld-out-of-memory.safetensors", (long)getpid());
  snprintf(saved_path, sizeof saved_path, "%ld-out-of-memory.saved", (long)getpid());
  foreign(&scene);
  tensor = scene.tensor;
  CHECK_OK(dlro_safetensors_save(archive_path, 1, &name, &tensor, 1, &name, &name));
  dlro_tensor_release(scene.tensor);
}

static void map_file(void) {
  const int file = memfd_create("out-of-memory", MFD_CLOEXEC); /* stays open: the library maps it through that */
  struct scene scene;
  CHECK(file >= 0 && ftruncate(file, FOREIGN_MAPPING) == 0);
  foreign_mapping = (uint8_t *)mmap(NULL, FOREIGN_MAPPING, PROT_READ, MAP_SHARED, file, 0);
  CHECK(foreign_mapping != MAP_FAILED);
  memset(&scene, 0, sizeof scene);
  foreign_mapped(&scene);
  CHECK(import_to_write(&scene) == DLRO_OK);
  CHECK(scene.out->flags == 0); /* a private view: what the operation below is about */
  dlro_tensor_release(scene.out);
  CHECK(scene.ended == 1);
}

int main(void) {
  static char output[1 << 16];
  struct scene scene;
  CHECK(setvbuf(stdout, output, _IOLBF, sizeof output) == 0);
  write_file();
  map_file();
  /* This program's allocator is the library's. */
  memset(&scene, 0, sizeof scene);
  arm(0, false);
  CHECK(new(&scene) == DLRO_OK);
  disarm();
  CHECK(calls > 0);
  dlro_tensor_release(scene.out);
  every_operation();
  quiet_functions();
  many_failures();
  more_than_there_is();
  much_in_a_row();
  CHECK(munmap(foreign_mapping, FOREIGN_MAPPING) == 0);
  CHECK(unlink(path) == 0 && unlink(archive_path) == 0 && unlink(saved_path) == 0);
  return 0;
}
