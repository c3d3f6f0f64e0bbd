/* Chapter library: versions, status names, the last error. */
#include "check.h"
#include <pthread.h>

static void *other_thread(void *sentence) {
  CHECK(strcmp(dlro_last_error_message(), "") == 0);
  CHECK_STATUS(dlro_tensor_validate(NULL), DLRO_ERR_NULL, "tensor is NULL");
  *(char *)sentence = dlro_last_error_message()[0];
  return NULL;
}

int main(void) {
  char expected[32], copied[64];
  const int32_t statuses[] = {DLRO_OK,        DLRO_ERR_READ_ONLY, DLRO_ERR_NOT_IMMUTABLE, DLRO_ERR_BUSY,
                              DLRO_ERR_COPY_NEEDED, DLRO_ERR_VERSION, DLRO_ERR_DTYPE, DLRO_ERR_DEVICE,
                              DLRO_ERR_LAYOUT, DLRO_ERR_NULL, DLRO_ERR_ARGUMENT, DLRO_ERR_BOUNDS,
                              DLRO_ERR_NO_MEMORY, DLRO_ERR_IO, DLRO_ERR_FORMAT, DLRO_ERR_UNSUPPORTED,
                              DLRO_ERR_INTERNAL};
  pthread_t thread;
  char first = 0;
  size_t i;
  snprintf(expected, sizeof expected, "%d.%d.%d", DLRO_VERSION_MAJOR, DLRO_VERSION_MINOR, DLRO_VERSION_PATCH);
  CHECK(strcmp(dlro_version_string(), expected) == 0);
  CHECK(dlro_version() == DLRO_VERSION);
  CHECK(dlro_dlpack_version().major == 1 && dlro_dlpack_version().minor == 3);
  checked("versions of header, library and DLPack agree");

  CHECK(sizeof(dlro_status) == 4);
  CHECK(strcmp(dlro_status_name(DLRO_ERR_READ_ONLY), "DLRO_ERR_READ_ONLY") == 0);
  CHECK(strcmp(dlro_status_name(-7), "unknown status") == 0);
  for (i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
    CHECK(strncmp(dlro_status_name(statuses[i]), "DLRO_", 5) == 0);
    CHECK(dlro_status_is_exchange_error(statuses[i]) == (statuses[i] >= 1 && statuses[i] <= 99));
  }
  checked("status names and the exchange family (case G3)");

  CHECK(strcmp(dlro_last_error_message(), "") == 0);
  CHECK(dlro_last_error_copy(NULL, 0) == 0);
  CHECK_STATUS(dlro_tensor_validate(NULL), DLRO_ERR_NULL, "tensor is NULL");
  CHECK(dlro_last_error_copy(copied, sizeof copied) == strlen("tensor is NULL"));
  CHECK(strcmp(copied, "tensor is NULL") == 0);
  CHECK(dlro_last_error_copy(copied, 4) == strlen("tensor is NULL") && strcmp(copied, "ten") == 0);
  CHECK(pthread_create(&thread, NULL, other_thread, &first) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(first == 't');
  dlro_tensor_release(NULL);
  CHECK(strcmp(dlro_last_error_message(), "tensor is NULL") == 0);
  checked("the last error is this thread's, survives success and releases, and can be copied");
  return 0;
}
