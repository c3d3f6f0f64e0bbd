/* Two processes, one array, no copy: the sender seals a tensor, passes the descriptor over a Unix socket, and the
 * receiver gets memory that nobody can change, neither the sender nor itself. */
#include <dlpack_ro.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, dlro_last_error_message());
  exit(1);
}

static void send_descriptor(int socket, int fd) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec vector = {&byte, 1};
  struct msghdr message = {0};
  struct cmsghdr *header;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &message, 0) != 1) fail("sendmsg");
}

static int receive_descriptor(int socket) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec vector = {&byte, 1};
  struct msghdr message = {0};
  int fd;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) != 1) fail("recvmsg");
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

static int receiver(int socket) {
  const int fd = receive_descriptor(socket);
  struct DLManagedTensorVersioned *tensor, *same;
  dlro_import_options immutable = DLRO_IMPORT_OPTIONS_INIT;
  const void *first;
  void *mine;
  char line[256];
  size_t length;
  if (dlro_sealed_import(fd, &tensor) != DLRO_OK) fail("import");
  immutable.access = DLRO_ACCESS_IMMUTABLE;
  immutable.copy = DLRO_COPY_NEVER;
  if (dlro_tensor_import(tensor, &immutable, &same) != DLRO_OK) fail("immutable access");
  if (same != tensor) fail("it was copied");
  if (dlro_tensor_describe(tensor, line, sizeof line, &length) != DLRO_OK) fail("describe");
  if (dlro_tensor_data(tensor, &first) != DLRO_OK) fail("data");
  printf("receiver %d: %s\n  first element %g\n", (int)getpid(), line, *(const double *)first);
  if (dlro_tensor_data_mut(tensor, &mine) != DLRO_ERR_READ_ONLY) fail("the library let it write");
  printf("  the library refuses: %s\n", dlro_last_error_message());
  if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) fail("the kernel let it map");
  printf("  the kernel refuses a writable mapping: %s\n", strerror(errno));
  if (pwrite(fd, "x", 1, 0) >= 0) fail("the kernel let it write");
  printf("  the kernel refuses a write: %s\n", strerror(errno));
  if (ftruncate(fd, 0) == 0) fail("the kernel let it shrink");
  printf("  the kernel refuses to shrink it: %s\n", strerror(errno));
  close(fd);
  dlro_tensor_release(tensor);
  return *line == '\0';
}

int main(void) {
  static double elements[1000];
  int64_t shape[2] = {10, 100};
  DLTensor layout = {elements, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, shape, NULL, 0};
  struct DLManagedTensorVersioned *tensor;
  int sockets[2], fd, state;
  pid_t child;
  elements[0] = 42;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) fail("socketpair");
  child = fork();
  if (child == 0) exit(receiver(sockets[1]));
  if (dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, NULL, NULL, &tensor) != DLRO_OK) fail("export");
  if (dlro_tensor_seal(tensor, &fd) != DLRO_OK) fail("seal");
  dlro_tensor_release(tensor);
  printf("sender %d: sealed %zu bytes in descriptor %d\n", (int)getpid(), sizeof elements, fd);
  fflush(stdout);
  elements[0] = 0; /* the sender's own array is another one now */
  send_descriptor(sockets[0], fd);
  close(fd);
  if (waitpid(child, &state, 0) != child || state != 0) fail("the receiver failed");
  return 0;
}
