/* One .npy file, a producer, a reader, a writer: nobody writes what must not be written, and nothing is copied
 * that need not be. Usage: demo FILE.npy */
#include <dlpack_ro.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int releases;

static void fail(const char *what) {
  fprintf(stderr, "demo: %s: %s\n", what, dlro_last_error_message());
  exit(1);
}

/* The producer's object is the mapped tensor; this lets go of it. */
static void let_go(void *owner) {
  releases++;
  dlro_tensor_release((struct DLManagedTensorVersioned *)owner);
}

static void show(const char *who, const struct DLManagedTensorVersioned *tensor) {
  char line[512];
  size_t length;
  if (dlro_tensor_describe(tensor, line, sizeof line, &length) != DLRO_OK) fail("describe");
  printf("  %-9s %s\n", who, line);
}

static uint64_t sum(const void *bytes, uint64_t count) {
  uint64_t hash = 1469598103934665603u, i;
  for (i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
  return hash;
}

static uint64_t file_sum(const char *path) {
  static unsigned char chunk[1 << 20];
  uint64_t total = 0;
  ssize_t got;
  const int fd = open(path, O_RDONLY);
  if (fd < 0) fail("open");
  while ((got = read(fd, chunk, sizeof chunk)) > 0) total = total * 31 + sum(chunk, (uint64_t)got);
  close(fd);
  return total;
}

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  struct DLManagedTensorVersioned *mapped, *exported, *reader, *writer;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  const void *seen, *first;
  void *mine;
  uint64_t before, nbytes;
  double start, took;
  int state = 0;
  pid_t child;

  if (argc != 2) {
    fprintf(stderr, "usage: demo FILE.npy\n");
    return 2;
  }
  before = file_sum(argv[1]);

  printf("1. A producer maps %s read-only: nothing is read but the header.\n", argv[1]);
  if (dlro_npy_map(argv[1], DLRO_MAP_READ_ONLY, &mapped) != DLRO_OK) fail("map");
  if (dlro_tensor_data(mapped, &first) != DLRO_OK || dlro_tensor_nbytes(mapped, &nbytes) != DLRO_OK) fail("data");
  show("mapped", mapped);
  if (nbytes == 0) {
    fprintf(stderr, "demo: the array is empty; give a file with elements\n");
    return 2;
  }

  printf("\n2. Today a consumer that ignores the flag, as PyTorch does, gets that pointer and writes:\n");
  fflush(stdout);
  child = fork();
  if (child == 0) {
    *(volatile unsigned char *)(size_t)first = 99;
    _exit(0);
  }
  waitpid(child, &state, 0);
  printf("  the process that wrote: %s\n",
         WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : "went on, and the data is changed");

  printf("\n3. The producer exports it instead, and says READ_ONLY.\n");
  if (dlro_tensor_export(&mapped->dl_tensor, 0, DLRO_MUTABILITY_READ_ONLY, mapped, let_go, &exported) != DLRO_OK)
    fail("export");
  show("exported", exported);

  printf("\n4. A reader imports it: the same memory, no copy.\n");
  if (dlro_tensor_import(exported, NULL, &reader) != DLRO_OK || dlro_tensor_data(reader, &seen) != DLRO_OK)
    fail("import for reading");
  show("reader", reader);
  printf("  the reader's address %s the mapping's\n", seen == first ? "is" : "IS NOT");
  if (seen != first) return 1;

  printf("\n5. A writer that forbids copies is refused, and told why:\n");
  options.access = DLRO_ACCESS_WRITE;
  options.copy = DLRO_COPY_NEVER;
  if (dlro_tensor_import(reader, &options, &writer) != DLRO_ERR_READ_ONLY) fail("the writer was not refused");
  printf("  DLRO_ERR_READ_ONLY: %s\n", dlro_last_error_message());
  if (dlro_tensor_data_mut(reader, &mine) != DLRO_ERR_READ_ONLY) fail("a pointer for writing was given away");
  printf("  DLRO_ERR_READ_ONLY: %s\n", dlro_last_error_message());

  printf("\n6. A writer that allows what is needed gets memory of its own, and writes:\n");
  options.copy = DLRO_COPY_IF_NEEDED;
  start = milliseconds();
  if (dlro_tensor_import(reader, &options, &writer) != DLRO_OK || dlro_tensor_data_mut(writer, &mine) != DLRO_OK)
    fail("import for writing");
  *(unsigned char *)mine ^= 0xff;
  took = milliseconds() - start;
  show("writer", writer);
  printf("  made writable and written in %.3f ms, for %.1f MB\n", took, (double)nbytes / 1e6);
  printf("  %s\n", writer->flags & DLPACK_FLAG_BITMASK_IS_COPIED
                          ? "that is a copy: for so few bytes it is faster than a mapping"
                          : "those are pages of its own where it writes, and the file's where it does not: no copy");
  dlro_tensor_release(writer);

  printf("\n7. Afterwards:\n");
  printf("  the file is %s\n", file_sum(argv[1]) == before ? "unchanged" : "CHANGED");
  printf("  the exported tensor was released %d time(s)\n", releases);
  return file_sum(argv[1]) == before && releases == 1 ? 0 : 1;
}
