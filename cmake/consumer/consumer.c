/* Exports an array read-only, is refused as a writer, and releases it. */
#include <dlpack_ro.h>
#include <stdio.h>

static void release(void *owner) { ++*(int *)owner; }

int main(void) {
  float numbers[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  int released = 0;
  DLTensor layout = {numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  struct DLManagedTensorVersioned *tensor;
  const void *data;
  void *writable;

  if (dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, release, &tensor) != DLRO_OK) {
    fprintf(stderr, "export: %s\n", dlro_last_error_message());
    return 1;
  }
  if (dlro_tensor_data(tensor, &data) != DLRO_OK || data != numbers) {
    fprintf(stderr, "reading was refused: %s\n", dlro_last_error_message());
    return 1;
  }
  if (dlro_tensor_data_mut(tensor, &writable) != DLRO_ERR_READ_ONLY) {
    fprintf(stderr, "writing was not refused\n");
    return 1;
  }
  printf("refused: %s\n", dlro_last_error_message());
  dlro_tensor_release(tensor);
  if (released != 1) {
    fprintf(stderr, "released %d times\n", released);
    return 1;
  }
  printf("dlpack_ro %s: released once\n", dlro_version_string());
  return 0;
}
