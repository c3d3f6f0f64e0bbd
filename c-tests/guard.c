/* Chapter guard: the report names the tensor, the index and the thread; then everything goes on as before. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct DLManagedTensorVersioned *enforced(int64_t *strides, uint64_t byte_offset) {
  static int64_t shape[2] = {4, 5};
  DLTensor window = {NULL, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, byte_offset};
  struct DLManagedTensorVersioned *tensor;
  dlro_buffer *buffer;
  CHECK_OK(dlro_buffer_new(4096, &buffer));
  CHECK_OK(dlro_buffer_freeze(buffer, DLRO_FREEZE_ENFORCE));
  CHECK_OK(dlro_buffer_export(buffer, &window, DLRO_MUTABILITY_IMMUTABLE, &tensor));
  dlro_buffer_release(buffer);
  return tensor;
}

static void previous(int signal, siginfo_t *info, void *context) {
  static const char text[] = "previous handler\n";
  (void)signal, (void)info, (void)context;
  if (write(2, text, sizeof text - 1) < 0) _exit(8);
  _exit(7);
}

static void previous_plain(int signal) {
  (void)signal;
  _exit(6);
}

static void *write_there(void *address) {
  *(volatile float *)address = 1;
  return NULL;
}

enum before { DEFAULT, SIGINFO, PLAIN };

/* A child installs the guard on top of some handler and writes; its report and its end come back. */
static int child(enum before before, int install, const struct DLManagedTensorVersioned *tensor, size_t offset,
                 int in_thread, char *report, size_t capacity) {
  int ends[2], state = 0;
  ssize_t got, all = 0;
  pid_t pid;
  CHECK(pipe(ends) == 0);
  pid = fork();
  if (pid == 0) {
    struct sigaction action;
    const void *first;
    void *address;
    memset(&action, 0, sizeof action);
    dup2(ends[1], 2);
    if (before == DEFAULT) action.sa_handler = SIG_DFL;
    if (before == SIGINFO) action.sa_sigaction = previous, action.sa_flags = SA_SIGINFO;
    if (before == PLAIN) action.sa_handler = previous_plain;
    sigaction(SIGSEGV, &action, NULL);
    if (install && dlro_guard_install() != DLRO_OK) _exit(9);
    if (install && dlro_guard_install() != DLRO_OK) _exit(9);
    if (dlro_tensor_data(tensor, &first) != DLRO_OK) _exit(9);
    address = (char *)(size_t)first + offset;
    if (in_thread) {
      pthread_t thread;
      pthread_create(&thread, NULL, write_there, address);
      pthread_join(thread, NULL);
    } else {
      write_there(address);
    }
    _exit(0);
  }
  close(ends[1]);
  while ((got = read(ends[0], report + all, capacity - 1 - (size_t)all)) > 0) all += got;
  report[all] = 0;
  close(ends[0]);
  CHECK(waitpid(pid, &state, 0) == pid);
  return WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state);
}

int main(void) {
  char report[4096];
  int64_t reversed[2] = {-5, -1}, shape[1] = {2};
  struct DLManagedTensorVersioned *tensor = enforced(NULL, 0), *backwards = enforced(reversed, 76), *other;
  DLTensor layout = {NULL, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  dlro_watch *watch = NULL, *second = NULL, *many[300];
  int i, made;

  CHECK_OK(dlro_guard_watch(tensor, "weights", &watch));
  CHECK_OK(dlro_guard_watch(backwards, "backwards", &second));
  CHECK(child(DEFAULT, 1, tensor, 52, 0, report, sizeof report) == -SIGSEGV);
  CHECK(strstr(report, "wrote to the immutable tensor 'weights'") != NULL);
  CHECK(strstr(report, "byte 52 of its float32 elements, index [2, 3]") != NULL);
  CHECK(strstr(report, "thread ") != NULL && strstr(report, "the code that did it is at 0x") != NULL);
  CHECK(child(DEFAULT, 1, backwards, (size_t)-52, 0, report, sizeof report) == -SIGSEGV);
  CHECK(strstr(report, "'backwards'") != NULL && strstr(report, "byte -52") != NULL);
  CHECK(strstr(report, "index [2, 3]") != NULL);
  CHECK(child(DEFAULT, 1, tensor, 8, 1, report, sizeof report) == -SIGSEGV);
  CHECK(strstr(report, "index [0, 2]") != NULL);
  checked("the report names tensor, offset, dtype, index, thread and code; then the default");

  CHECK(child(SIGINFO, 1, tensor, 0, 0, report, sizeof report) == 7);
  CHECK(strstr(report, "'weights'") != NULL && strstr(report, "previous handler") != NULL);
  CHECK(strstr(report, "'weights'") < strstr(report, "previous handler"));
  CHECK(child(PLAIN, 1, tensor, 0, 0, report, sizeof report) == 6 && strstr(report, "'weights'") != NULL);
  checked("handlers that were there before run after the report");

  CHECK(child(SIGINFO, 0, tensor, 0, 0, report, sizeof report) == 7 && strstr(report, "'weights'") == NULL);
  /* Beyond its range: not this tensor's. */
  CHECK(child(DEFAULT, 1, tensor, 80, 0, report, sizeof report) == -SIGSEGV && strstr(report, "dlpack_ro") == NULL);
  dlro_watch_release(watch);
  CHECK(child(DEFAULT, 1, tensor, 0, 0, report, sizeof report) == -SIGSEGV && strstr(report, "dlpack_ro") == NULL);
  dlro_watch_release(NULL);
  checked("no report without the guard, beyond the tensor, or after the watch has ended");

  CHECK_STATUS(dlro_guard_watch(NULL, "x", &watch), DLRO_ERR_NULL, "tensor is NULL");
  CHECK_STATUS(dlro_guard_watch(tensor, NULL, &watch), DLRO_ERR_NULL, "label is NULL");
  CHECK_STATUS(dlro_guard_watch(tensor, "x", NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK_STATUS(dlro_guard_watch(tensor, "\xff", &watch), DLRO_ERR_ARGUMENT, "label is not UTF-8");
  CHECK_OK(dlro_tensor_new(&layout, &other));
  CHECK_STATUS(dlro_guard_watch(other, "x", &watch), DLRO_ERR_UNSUPPORTED, "writable");
  dlro_tensor_release(other);
  for (made = 0; made < 300; made++)
    if (dlro_guard_watch(tensor, "many", &many[made]) != DLRO_OK) break;
  CHECK(made == 255 && strstr(dlro_last_error_message(), "256") != NULL);
  for (i = 0; i < made; i++) dlro_watch_release(many[i]);
  CHECK_OK(dlro_guard_watch(tensor, "again", &watch));
  dlro_tensor_release(tensor); /* the watch keeps the memory */
  dlro_watch_release(watch);
  dlro_watch_release(second);
  dlro_tensor_release(backwards);
  checked("what cannot be watched is refused, and places come back");
  return 0;
}
