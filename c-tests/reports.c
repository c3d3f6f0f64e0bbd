/* What public reports of broken exchanges ask for and no chapter's program shows; docs/rules.md has the list. */
#include "producer.h"

/* Case A16: a producer that wants its consumer to write says so in the versioned struct; the legacy one cannot. */
static void writable_for_whom(void) {
  static int32_t elements[4];
  int64_t shape[1] = {4};
  const DLPackVersion one = {1, 0};
  const int host[] = {kDLCPU, kDLCUDAHost, kDLROCMHost};
  int i;
  for (i = 0; i < LENGTH(host); i++) {
    DLTensor layout = on_device(describe(elements, dtype(kDLInt, 32, 1), 1, shape, NULL), host[i], 0);
    Tensor *tensor, *taken;
    dlro_exported answer;
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_WRITABLE, NULL, NULL, &tensor));
    CHECK_OK(dlro_tensor_export_for(tensor, &one, NULL, &answer));
    CHECK(answer.versioned != NULL && answer.versioned->flags == 0);
    CHECK_OK(dlro_tensor_import(answer.versioned, NULL, &taken));
    CHECK(is_writable(taken));
    CHECK_OK(dlro_tensor_export_for(taken, NULL, NULL, &answer));
    CHECK(answer.legacy != NULL && (int)answer.legacy->dl_tensor.device.device_type == host[i]);
    answer.legacy->deleter(answer.legacy);
  }
  checked("case A16: writable host memory of three kinds is writable for whoever takes the versioned struct");
}

/* Case B15: whatever the caller passes by pointer is overwritten right after the call. */
static void overwritten_arguments(void) {
  static float elements[6] = {0, 1, 2, 3, 4, 5};
  int released = 0, deleted = 0;
  Tensor *tensor, *share, *imported, *new_one;
  dlro_exported answer;
  {
    int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
    DLTensor layout = describe(elements, dtype(kDLFloat, 32, 1), 2, shape, strides);
    CHECK_OK(dlro_tensor_export(&layout, 0, DLRO_MUTABILITY_READ_ONLY, &released, count_release, &tensor));
    CHECK_OK(dlro_tensor_new(&layout, &new_one));
    CHECK_OK(dlro_tensor_share(tensor, DLRO_MUTABILITY_READ_ONLY, &layout, &share));
    memset(shape, 0xAA, sizeof shape), memset(strides, 0xAA, sizeof strides), memset(&layout, 0xAA, sizeof layout);
  }
  CHECK_OK(dlro_tensor_validate(tensor));
  CHECK_OK(dlro_tensor_validate(share));
  CHECK_OK(dlro_tensor_validate(new_one));
  CHECK(new_one->dl_tensor.shape[1] == 3 && share->dl_tensor.shape[1] == 3 && *(const float *)element(share, 5) == 5);
  dlro_tensor_release(new_one);
  dlro_tensor_release(share);
  {
    DLPackVersion one = {1, 0};
    dlro_export_options options = DLRO_EXPORT_OPTIONS_INIT;
    CHECK_OK(dlro_tensor_export_for(tensor, &one, &options, &answer));
    memset(&one, 0xAA, sizeof one), memset(&options, 0xAA, sizeof options);
  }
  {
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    options.flags = DLRO_IMPORT_ADOPT;
    CHECK_OK(dlro_tensor_import(answer.versioned, &options, &imported));
    memset(&options, 0xAA, sizeof options), memset(&answer, 0xAA, sizeof answer);
  }
  CHECK_OK(dlro_tensor_validate(imported));
  CHECK(is_address(imported, elements) && *(const float *)element(imported, 4) == 4 && released == 0);
  dlro_tensor_release(imported);
  CHECK(released == 1);
  {
    int64_t shape[1] = {6};
    dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
    Tensor *foreign = foreign_tensor(describe(elements, dtype(kDLFloat, 32, 1), 1, shape, NULL), 3, 0, &deleted);
    CHECK_OK(dlro_tensor_import(foreign, &options, &imported));
    memset(shape, 0xAA, sizeof shape), memset(&options, 0xAA, sizeof options);
  }
  CHECK(imported->dl_tensor.shape[0] == 6 && imported->dl_tensor.strides[0] == 1 && deleted == 0);
  dlro_tensor_release(imported);
  CHECK(deleted == 1);
  checked("case B15: descriptors, arrays, options and versions may be overwritten right after the call");
}

/* Case B20: a view needs nothing but itself: the tensor and the buffer that it came from may go first. */
static void views_keep_memory(void) {
  int64_t shape[1] = {1024};
  DLTensor prototype = describe(NULL, dtype(kDLInt, 32, 1), 1, shape, NULL), window = prototype;
  Tensor *whole, *view, *last;
  dlro_buffer *buffer;
  void *data;
  CHECK_OK(dlro_tensor_new(&prototype, &whole));
  CHECK_OK(dlro_tensor_data_mut(whole, &data));
  memset(data, 0x11, 4096);
  shape[0] = 4;
  window.byte_offset = 4080;
  CHECK_OK(dlro_tensor_share(whole, DLRO_MUTABILITY_READ_ONLY, &window, &view));
  dlro_tensor_release(whole);
  CHECK(int32_at(view, 3) == 0x11111111);
  window.byte_offset = 0;
  CHECK_OK(dlro_buffer_import(view, &buffer));
  CHECK_OK(dlro_buffer_export(buffer, &window, DLRO_MUTABILITY_READ_ONLY, &last));
  dlro_buffer_release(buffer);
  CHECK(int32_at(last, 0) == 0x11111111 && int32_at(last, 3) == 0x11111111);
  dlro_tensor_release(last);
  checked("case B20: a view keeps its memory, whatever it came from");
}

/* Case D7: a consumer that cannot go backwards learns which dimension does, and a copy goes forwards. */
static void backwards(void) {
  int64_t base[10], shape[3] = {1, 2, 5}, strides[3] = {-77, 5, -1};
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  int deleted = 0, i;
  Tensor *foreign, *out;
  for (i = 0; i < 10; i++) base[i] = i;
  options.layout = DLRO_LAYOUT_NON_NEGATIVE;
  options.copy = DLRO_COPY_NEVER;
  foreign = foreign_tensor(describe(base + 4, dtype(kDLInt, 64, 1), 3, shape, strides), 0, 0, &deleted);
  /* The stride of a dimension of size 1 means nothing. */
  CHECK_REFUSED(out, dlro_tensor_import(foreign, &options, &out), DLRO_ERR_COPY_NEEDED,
                "strides >= 0 are required, and strides[2] is -1");
  options.copy = DLRO_COPY_IF_NEEDED;
  CHECK(deleted == 0);
  CHECK_OK(dlro_tensor_import(foreign, &options, &out));
  CHECK(deleted == 1);
  for (i = 0; i < 10; i++) CHECK(*(const int64_t *)element(out, i) == (i < 5 ? 4 - i : 14 - i));
  dlro_tensor_release(out);
  shape[0] = 10, strides[0] = -1;
  foreign = foreign_tensor(describe(base + 9, dtype(kDLInt, 64, 1), 1, shape, strides), 0, 0, &deleted);
  options.copy = DLRO_COPY_NEVER;
  CHECK_REFUSED(out, dlro_tensor_import(foreign, &options, &out), DLRO_ERR_COPY_NEEDED, "strides[0] is -1");
  dlro_tensor_release(foreign);
  checked("case D7: the sentence names the dimension that goes backwards, and a copy goes forwards");
}

/* Case F1: what can be exported can be imported, by either struct, with the same dtype and the same bytes. */
static void round_trips(void) {
  static unsigned char bytes[256], copied_bytes[256];
  const int lane_counts[] = {1, 2, 4};
  int64_t shape[1] = {2};
  dlro_import_options copying = DLRO_IMPORT_OPTIONS_INIT, adopting = DLRO_IMPORT_OPTIONS_INIT;
  const DLPackVersion newest = {1, 3};
  int code, bits, l, padded, made = 0;
  copying.copy = DLRO_COPY_ALWAYS;
  adopting.flags = DLRO_IMPORT_ADOPT;
  for (code = 0; code < 24; code++)
    for (bits = 0; bits < 256; bits++)
      for (l = 0; l < LENGTH(lane_counts); l++)
        for (padded = 0; padded < 2; padded++) {
          DLTensor layout = describe(bytes, dtype(code, bits, lane_counts[l]), 1, shape, NULL);
          const uint64_t flags = padded ? PADDED : 0;
          uint32_t width;
          uint64_t nbytes, again;
          dlro_exported answer;
          Tensor *tensor;
          const int32_t status = dlro_dtype_bits(layout.dtype, &width);
          int i;
          if (status != DLRO_OK) {
            CHECK_REFUSED(tensor, dlro_tensor_export(&layout, flags, DLRO_MUTABILITY_WRITABLE, NULL, NULL, &tensor),
                          DLRO_ERR_DTYPE, "dtype (code ");
            continue;
          }
          made++;
          for (i = 0; i < 256; i++) bytes[i] = (unsigned char)(i * 7 + 1);
          CHECK_OK(dlro_tensor_export(&layout, flags, DLRO_MUTABILITY_WRITABLE, NULL, NULL, &tensor));
          CHECK_OK(dlro_tensor_nbytes(tensor, &nbytes));
          CHECK_OK(dlro_tensor_export_for(tensor, &newest, NULL, &answer));
          CHECK_OK(dlro_tensor_import(answer.versioned, &adopting, &tensor));
          CHECK(memcmp(&tensor->dl_tensor.dtype, &layout.dtype, sizeof layout.dtype) == 0 && tensor->flags == flags);
          if (!padded) {
            CHECK_OK(dlro_tensor_export_for(tensor, NULL, NULL, &answer));
            CHECK(memcmp(&answer.legacy->dl_tensor.dtype, &layout.dtype, sizeof layout.dtype) == 0);
            CHECK_OK(dlro_legacy_import(answer.legacy, DLRO_MUTABILITY_WRITABLE, &adopting, &tensor));
          }
          CHECK_OK(dlro_tensor_nbytes(tensor, &again));
          CHECK(is_address(tensor, bytes) && again == nbytes);
          CHECK_OK(dlro_tensor_import(tensor, &copying, &tensor));
          CHECK(memcmp(&tensor->dl_tensor.dtype, &layout.dtype, sizeof layout.dtype) == 0);
          CHECK(tensor->flags == (flags | IS_COPIED));
          CHECK_OK(dlro_tensor_nbytes(tensor, &again));
          CHECK(again == nbytes && nbytes <= sizeof copied_bytes);
          memcpy(copied_bytes, tensor->dl_tensor.data, (size_t)nbytes);
          if (width * 2 % 8 == 0) CHECK(memcmp(copied_bytes, bytes, (size_t)nbytes) == 0);
          dlro_tensor_release(tensor);
        }
  CHECK(made == 2 * 3 * (6 + 6 + 4 + 1 + 3 + 1 + 8 + 2 + 1));
  checked("case F1: what can be exported can be imported, by either struct, with the same dtype and the same bytes");
}

int main(void) {
  writable_for_whom();
  overwritten_arguments();
  views_keep_memory();
  backwards();
  round_trips();
  return 0;
}
