// Exports an array read-only, is refused as a writer, and releases it.
#include <dlpack_ro.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <memory>

struct Release {
  void operator()(DLManagedTensorVersioned *tensor) const { dlro_tensor_release(tensor); }
};
using Tensor = std::unique_ptr<DLManagedTensorVersioned, Release>;

int main() {
  std::array<float, 6> numbers{0, 1, 2, 3, 4, 5};
  std::array<std::int64_t, 2> shape{2, 3};
  int released = 0;
  DLTensor layout{};
  layout.data = numbers.data();
  layout.device = {kDLCPU, 0};
  layout.ndim = static_cast<std::int32_t>(shape.size());
  layout.dtype = {kDLFloat, 32, 1};
  layout.shape = shape.data();
  const auto release = [](void *owner) { ++*static_cast<int *>(owner); };

  DLManagedTensorVersioned *exported = nullptr;
  if (dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, release, &exported) != DLRO_OK) {
    std::cerr << "export: " << dlro_last_error_message() << '\n';
    return 1;
  }
  {
    const Tensor tensor{exported};
    const void *data = nullptr;
    void *writable = nullptr;
    if (dlro_tensor_data(tensor.get(), &data) != DLRO_OK || data != numbers.data()) {
      std::cerr << "reading was refused: " << dlro_last_error_message() << '\n';
      return 1;
    }
    if (dlro_tensor_data_mut(tensor.get(), &writable) != DLRO_ERR_READ_ONLY) {
      std::cerr << "writing was not refused\n";
      return 1;
    }
    std::cout << "refused: " << dlro_last_error_message() << '\n';
  }
  if (released != 1) {
    std::cerr << "released " << released << " times\n";
    return 1;
  }
  std::cout << "dlpack_ro " << dlro_version_string() << ": released once\n";
}
