/* CHECK(...): evaluates a condition once and says where it failed; prints what a program checked. */
#ifndef CHECK_H_
#define CHECK_H_

#include <dlpack_ro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_count;

#define CHECK(condition)                                                                            \
  do {                                                                                              \
    check_count++;                                                                                  \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: CHECK(%s) failed; last error: %s\n", __FILE__, __LINE__, #condition, \
              dlro_last_error_message());                                                           \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

/* The call answers this status, and where it fails the sentence contains that text. */
#define CHECK_STATUS(call, expected, text)                                                                  \
  do {                                                                                                      \
    const int32_t check_status = (int32_t)(call);                                                           \
    check_count++;                                                                                          \
    if (check_status != (int32_t)(expected) ||                                                              \
        (check_status != DLRO_OK && strstr(dlro_last_error_message(), text) == NULL)) {                     \
      fprintf(stderr, "%s:%d: %s answered %s: %s\n  expected %s with \"%s\"\n", __FILE__, __LINE__, #call,  \
              dlro_status_name(check_status), dlro_last_error_message(), dlro_status_name(expected), text); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, DLRO_OK, "")

/* Say what the checks since the last call were about. */
static inline void checked(const char *what) {
  printf("  %4d checks: %s\n", check_count, what);
  check_count = 0;
}

#endif
