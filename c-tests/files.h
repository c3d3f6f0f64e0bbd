/* What the programs about files share: a folder of their own, files in it, descriptors counted. */
#ifndef FILES_H_
#define FILES_H_

#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The drivers run the same program several times at once. */
static char folder[] = "files-XXXXXX";

static inline void enter_folder(void) {
  CHECK(mkdtemp(folder) != NULL);
  CHECK(chdir(folder) == 0);
}

/* How many names a folder holds. */
static inline int count_in(const char *path) {
  DIR *entries = opendir(path);
  int count = -3; /* ".", ".." and, in /proc/self/fd, the one that reads it; callers compare only */
  CHECK(entries != NULL);
  while (readdir(entries) != NULL) count++;
  closedir(entries);
  return count;
}

static inline int open_descriptors(void) { return count_in("/proc/self/fd"); }

static inline void leave_folder(void) {
  DIR *entries = opendir(".");
  struct dirent *entry;
  CHECK(entries != NULL);
  while ((entry = readdir(entries)) != NULL)
    if (entry->d_name[0] != '.') unlink(entry->d_name);
  closedir(entries);
  CHECK(chdir("..") == 0);
  CHECK(rmdir(folder) == 0); /* fails if a temporary file was left behind: its name begins with a dot */
}

static inline void write_file(const char *path, const void *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  CHECK(fwrite(bytes, 1, length, file) == length);
  CHECK(fclose(file) == 0);
}

/* Answers the length; the bytes are to be freed. */
static inline size_t read_file(const char *path, unsigned char **bytes) {
  FILE *file = fopen(path, "rb");
  long length;
  CHECK(file != NULL);
  CHECK(fseek(file, 0, SEEK_END) == 0);
  length = ftell(file);
  rewind(file);
  *bytes = (unsigned char *)malloc((size_t)length + 1);
  CHECK(*bytes != NULL);
  CHECK(fread(*bytes, 1, (size_t)length, file) == (size_t)length);
  (*bytes)[length] = 0;
  fclose(file);
  return (size_t)length;
}

/* A safetensors file: the header's length, the header, and that many bytes 0, 1, 2, ... */
static inline void write_archive(const char *path, const char *header, size_t data) {
  const size_t length = strlen(header);
  unsigned char *bytes = (unsigned char *)malloc(8 + length + data);
  size_t i;
  CHECK(bytes != NULL);
  for (i = 0; i < 8; i++) bytes[i] = (unsigned char)((unsigned long long)length >> (8 * i));
  memcpy(bytes + 8, header, length);
  for (i = 0; i < data; i++) bytes[8 + length + i] = (unsigned char)i;
  write_file(path, bytes, 8 + length + data);
  free(bytes);
}

#endif
