/* Chapter sealed: what the kernel keeps from changing is immutable, anything else only read-only. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static int descriptors(void) {
  int fd, open_ones = 0;
  for (fd = 0; fd < 256; fd++) open_ones += fcntl(fd, F_GETFD) >= 0;
  return open_ones;
}

static struct DLManagedTensorVersioned *exported(void *data, DLDataType dtype, int64_t *shape, int64_t *strides) {
  DLTensor layout = {data, {kDLCPU, 0}, 2, dtype, shape, strides, 0};
  struct DLManagedTensorVersioned *tensor;
  CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor));
  return tensor;
}

int main(void) {
  static int32_t numbers[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3}, fortran[2] = {1, 2}, reversed[2] = {-3, -1}, empty[2] = {0, 3};
  const DLDataType int32 = {kDLInt, 32, 1}, bfloat16 = {kDLBfloat, 16, 1};
  struct DLManagedTensorVersioned *source, *tensor, *writer;
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  const int before = descriptors();
  const void *first;
  void *mine;
  int fd = 5;
  char magic[6];

  source = exported(numbers, int32, shape, NULL);
  CHECK_OK(dlro_tensor_seal(source, &fd));
  numbers[0] = 77;
  CHECK(pread(fd, magic, 6, 0) == 6 && memcmp(magic, "\x93NUMPY", 6) == 0);
  CHECK(pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 1) != 0 && ftruncate(fd, 100000) != 0);
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_OK(dlro_sealed_import(fd, &tensor));
  close(fd);
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_IMMUTABLE && (tensor->flags & 1) == 1);
  CHECK(tensor->dl_tensor.strides[0] == 3 && tensor->dl_tensor.strides[1] == 1);
  CHECK_OK(dlro_tensor_data(tensor, &first));
  CHECK(((const int32_t *)first)[0] == 0 && ((const int32_t *)first)[5] == 5);
  CHECK_STATUS(dlro_tensor_data_mut(tensor, &mine), DLRO_ERR_READ_ONLY, "read-only");
  options.access = DLRO_ACCESS_IMMUTABLE;
  options.copy = DLRO_COPY_NEVER;
  CHECK_OK(dlro_tensor_import(tensor, &options, &writer));
  CHECK(writer == tensor);
  options.access = DLRO_ACCESS_WRITE;
  options.copy = DLRO_COPY_IF_NEEDED;
  CHECK_OK(dlro_tensor_import(tensor, &options, &writer));
  CHECK_OK(dlro_tensor_data_mut(writer, &mine));
  ((int32_t *)mine)[0] = 1;
  dlro_tensor_release(writer);
  dlro_tensor_release(source);
  numbers[0] = 0;
  CHECK(descriptors() == before);
  checked("sealed memory is immutable to everybody, and a writer gets pages of its own");

  source = exported(numbers, int32, shape, fortran);
  CHECK_OK(dlro_tensor_seal(source, &fd));
  dlro_tensor_release(source);
  CHECK_OK(dlro_sealed_import(fd, &tensor));
  CHECK(tensor->dl_tensor.strides[0] == 1 && tensor->dl_tensor.strides[1] == 2);
  CHECK_OK(dlro_tensor_data(tensor, &first));
  CHECK(memcmp(first, numbers, sizeof numbers) == 0);
  dlro_tensor_release(tensor);
  close(fd);
  source = exported(numbers + 5, int32, shape, reversed);
  CHECK_OK(dlro_tensor_seal(source, &fd));
  dlro_tensor_release(source);
  CHECK_OK(dlro_sealed_import(fd, &tensor));
  CHECK_OK(dlro_tensor_data(tensor, &first));
  CHECK(((const int32_t *)first)[0] == 5 && ((const int32_t *)first)[5] == 0);
  dlro_tensor_release(tensor);
  close(fd);
  source = exported(NULL, int32, empty, NULL);
  CHECK_OK(dlro_tensor_seal(source, &fd));
  dlro_tensor_release(source);
  CHECK_OK(dlro_sealed_import(fd, &tensor));
  CHECK(tensor->dl_tensor.data == NULL && tensor->dl_tensor.shape[1] == 3);
  dlro_tensor_release(tensor);
  close(fd);
  CHECK(descriptors() == before);
  checked("any layout: Fortran order stays, the others become row-major, empty tensors too");

  source = exported(numbers, bfloat16, shape, NULL);
  CHECK_STATUS(dlro_tensor_seal(source, &fd), DLRO_ERR_DTYPE, "");
  CHECK(fd == -1);
  dlro_tensor_release(source);
  source = exported(numbers, int32, shape, NULL);
  CHECK_STATUS(dlro_tensor_seal(source, NULL), DLRO_ERR_NULL, "fd_out is NULL");
  CHECK_STATUS(dlro_tensor_seal(NULL, &fd), DLRO_ERR_NULL, "tensor is NULL");
  source->dl_tensor.device.device_type = kDLCUDA;
  CHECK_STATUS(dlro_tensor_seal(source, &fd), DLRO_ERR_DEVICE, "device (type 2, id 0)");
  source->dl_tensor.device.device_type = kDLCPU;
  source->version.major = 2;
  CHECK_STATUS(dlro_tensor_seal(source, &fd), DLRO_ERR_VERSION, "version 2.0");
  source->version.major = 1;
  CHECK(descriptors() == before);
  checked("what cannot be sealed is refused, and no descriptor stays open");

  /* The same bytes in a memfd that can still be written: read-only, not immutable. */
  CHECK_OK(dlro_tensor_seal(source, &fd));
  {
    char content[1024];
    const ssize_t size = pread(fd, content, sizeof content, 0);
    int open_fd = memfd_create("open", MFD_ALLOW_SEALING), plain[2];
    CHECK(open_fd >= 0 && pwrite(open_fd, content, (size_t)size, 0) == size);
    CHECK_OK(dlro_sealed_import(open_fd, &tensor));
    CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY);
    options.access = DLRO_ACCESS_IMMUTABLE;
    options.copy = DLRO_COPY_NEVER;
    CHECK_STATUS(dlro_tensor_import(tensor, &options, &writer), DLRO_ERR_NOT_IMMUTABLE, "");
    dlro_tensor_release(tensor);
    /* Sealed against writing only: it could still be shortened under a reader. */
    CHECK(fcntl(open_fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    CHECK_OK(dlro_sealed_import(open_fd, &tensor));
    CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY);
    dlro_tensor_release(tensor);
    CHECK(fcntl(open_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    CHECK_OK(dlro_sealed_import(open_fd, &tensor));
    CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_IMMUTABLE);
    dlro_tensor_release(tensor);
    close(open_fd);
    CHECK(pipe(plain) == 0);
    CHECK_STATUS(dlro_sealed_import(plain[0], &tensor), DLRO_ERR_FORMAT, "regular");
    close(plain[0]);
    close(plain[1]);
    open_fd = memfd_create("short", MFD_ALLOW_SEALING);
    CHECK(open_fd >= 0 && pwrite(open_fd, content, (size_t)size - 1, 0) == size - 1);
    CHECK_STATUS(dlro_sealed_import(open_fd, &tensor), DLRO_ERR_FORMAT, "bytes");
    CHECK(tensor == NULL);
    close(open_fd);
  }
  close(fd);
  CHECK_STATUS(dlro_sealed_import(-1, &tensor), DLRO_ERR_IO, "Bad file descriptor");
  CHECK_STATUS(dlro_sealed_import(0, NULL), DLRO_ERR_NULL, "out is NULL");
  dlro_tensor_release(source);
  CHECK(descriptors() == before);
  checked("immutable only if the kernel says so; descriptors stay the caller's");
  return 0;
}
