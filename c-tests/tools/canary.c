/* Does on purpose what valgrind and the sanitizers are there to see. Not a test of the library. */
#include "check.h"

int main(int argc, char **argv) {
  int64_t shape[1] = {4};
  DLTensor layout = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  struct DLManagedTensorVersioned *tensor;
  const char *fault = argc > 1 ? argv[1] : "fine";
  volatile int amount = 40;
  CHECK_OK(dlro_tensor_new(&layout, &tensor));
  if (strcmp(fault, "overflow") == 0) {
    char *volatile block = (char *)malloc(8);
    block[amount] = 1;
    free(block);
  }
  if (strcmp(fault, "shift") == 0) printf("%d\n", 1 << amount);
  if (strcmp(fault, "leak") == 0) {
    tensor = NULL;
    return 0;
  }
  dlro_tensor_release(tensor);
  if (strcmp(fault, "use-after-release") == 0) return (int)tensor->flags;
  return 0;
}
