/* Chapter files, reading safetensors: names, tensors that outlive the archive, both modes, and every refusal. */
#include "files.h"
#include <pthread.h>

static const char *const two =
    "{\"__metadata__\":{\"format\":\"pt\",\"\\u0394\":\"a\\\"b\"},"
    "\"z\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"a\\u0394\":{\"dtype\":\"I16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[32,32]},"
    "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[32,34]}}   ";

static void names_and_tensors(void) {
  const int before = open_descriptors();
  dlro_archive *archive;
  struct DLManagedTensorVersioned *tensor, *others[3];
  const char *name, *value;
  const void *data;
  size_t index;
  write_archive("two.safetensors", two, 34);
  CHECK_OK(dlro_safetensors_map("two.safetensors", DLRO_MAP_READ_ONLY, &archive));
  CHECK(dlro_archive_count(archive) == 4);
  CHECK_OK(dlro_archive_name(archive, 0, &name));
  CHECK(strcmp(name, "z") == 0);
  CHECK_OK(dlro_archive_name(archive, 1, &name));
  CHECK(strcmp(name, "a\xce\x94") == 0);
  CHECK_OK(dlro_archive_name(archive, 2, &name));
  CHECK(strcmp(name, "") == 0);
  CHECK_OK(dlro_archive_find(archive, "scalar", &index));
  CHECK(index == 3);
  CHECK_OK(dlro_archive_find(archive, "a\xce\x94", &index));
  CHECK(index == 1);
  CHECK_OK(dlro_archive_find(archive, "", &index));
  CHECK(index == 2);
  CHECK(dlro_archive_metadata_count(archive) == 2);
  CHECK_OK(dlro_archive_metadata(archive, 1, &name, &value));
  CHECK(strcmp(name, "\xce\x94") == 0 && strcmp(value, "a\"b") == 0);
  checked("names in the order of the file, found by name, and metadata, unescaped");

  CHECK_OK(dlro_archive_tensor(archive, 0, &tensor));
  CHECK(tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.shape[0] == 2 && tensor->dl_tensor.shape[1] == 3);
  CHECK(tensor->dl_tensor.strides[0] == 3 && tensor->dl_tensor.strides[1] == 1);
  CHECK(tensor->dl_tensor.dtype.code == kDLFloat && tensor->dl_tensor.dtype.bits == 32);
  CHECK((tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
  CHECK(dlro_tensor_mutability(tensor) == DLRO_MUTABILITY_READ_ONLY);
  CHECK_OK(dlro_tensor_validate(tensor));
  for (index = 1; index < 4; index++) CHECK_OK(dlro_archive_tensor(archive, index, &others[index - 1]));
  CHECK(others[1]->dl_tensor.data == NULL && others[1]->dl_tensor.shape[1] == 0);
  CHECK(others[2]->dl_tensor.ndim == 0 && others[2]->dl_tensor.dtype.code == kDLBfloat);
  CHECK(open_descriptors() == before + 1);
  dlro_archive_release(archive);
  CHECK(open_descriptors() == before + 1);
  unlink("two.safetensors");
  dlro_tensor_release(others[2]);
  dlro_tensor_release(others[1]);
  CHECK_OK(dlro_tensor_data(others[0], &data));
  CHECK(memcmp(data, "\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f", 8) == 0);
  dlro_tensor_release(others[0]);
  CHECK_OK(dlro_tensor_data(tensor, &data));
  CHECK(((const unsigned char *)data)[23] == 23);
  CHECK(open_descriptors() == before + 1);
  dlro_tensor_release(tensor);
  CHECK(open_descriptors() == before);
  checked("tensors outlive the archive and the file's name; the last one closes the file");
}

static void every_dtype(void) {
  static const struct {
    const char *name;
    int code, bits;
  } types[] = {{"BOOL", kDLBool, 8},           {"F4", kDLFloat4_e2m1fn, 4},
               {"F6_E2M3", kDLFloat6_e2m3fn, 6}, {"F6_E3M2", kDLFloat6_e3m2fn, 6},
               {"U8", kDLUInt, 8},             {"I8", kDLInt, 8},
               {"F8_E5M2", kDLFloat8_e5m2, 8}, {"F8_E4M3", kDLFloat8_e4m3fn, 8},
               {"F8_E8M0", kDLFloat8_e8m0fnu, 8}, {"F8_E4M3FNUZ", kDLFloat8_e4m3fnuz, 8},
               {"F8_E5M2FNUZ", kDLFloat8_e5m2fnuz, 8}, {"I16", kDLInt, 16},
               {"U16", kDLUInt, 16},           {"F16", kDLFloat, 16},
               {"BF16", kDLBfloat, 16},        {"I32", kDLInt, 32},
               {"U32", kDLUInt, 32},           {"F32", kDLFloat, 32},
               {"C64", kDLComplex, 64},        {"F64", kDLFloat, 64},
               {"I64", kDLInt, 64},            {"U64", kDLUInt, 64}};
  size_t i;
  for (i = 0; i < sizeof types / sizeof types[0]; i++) {
    char header[200];
    dlro_archive *archive;
    struct DLManagedTensorVersioned *tensor;
    snprintf(header, sizeof header, "{\"t\":{\"shape\":[8],\"dtype\":\"%s\",\"data_offsets\":[0,%d]}}",
             types[i].name, types[i].bits);
    write_archive("dtype", header, (size_t)types[i].bits);
    CHECK_OK(dlro_safetensors_map("dtype", DLRO_MAP_READ_ONLY, &archive));
    CHECK_OK(dlro_archive_tensor(archive, 0, &tensor));
    CHECK(tensor->dl_tensor.dtype.code == types[i].code && tensor->dl_tensor.dtype.bits == types[i].bits);
    CHECK(tensor->dl_tensor.dtype.lanes == 1 && tensor->dl_tensor.shape[0] == 8);
    CHECK((tensor->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) == 0);
    CHECK(tensor->version.minor == (types[i].code >= kDLFloat8_e3m4 ? 1u : 0u));
    dlro_tensor_release(tensor);
    dlro_archive_release(archive);
  }
  checked("every dtype of the format, sub-byte ones packed");
}

static void writers(void) {
  enum { LARGE = 1 << 20 };
  const int before = open_descriptors();
  dlro_import_options options = DLRO_IMPORT_OPTIONS_INIT;
  dlro_archive *archive;
  struct DLManagedTensorVersioned *first, *second, *again, *imported;
  unsigned char *file;
  const void *there;
  void *data;
  size_t length;
  char header[200];
  options.access = DLRO_ACCESS_WRITE;
  snprintf(header, sizeof header,
           "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[3,%d]}}", LARGE, LARGE + 3);
  write_archive("large", header, LARGE + 3);

  CHECK_OK(dlro_safetensors_map("large", DLRO_MAP_READ_ONLY, &archive));
  CHECK_OK(dlro_archive_tensor(archive, 1, &first));
  CHECK_OK(dlro_archive_tensor(archive, 1, &second));
  CHECK_STATUS(dlro_tensor_data_mut(first, &data), DLRO_ERR_READ_ONLY, "read-only");
  CHECK_OK(dlro_tensor_import(first, &options, &imported));
  first = imported;
  CHECK(open_descriptors() == before + 1); /* its mapping needs no descriptor: it is never mapped again */
  CHECK((first->flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED)) == 0);
  CHECK_OK(dlro_tensor_data_mut(first, &data));
  CHECK(((unsigned char *)data)[0] == 3 && ((unsigned char *)data)[LARGE - 1] == 2);
  ((unsigned char *)data)[0] = 77;
  CHECK_OK(dlro_tensor_data(second, &there));
  CHECK(((const unsigned char *)there)[0] == 3);
  dlro_archive_release(archive);
  dlro_tensor_release(second);
  CHECK(open_descriptors() == before && ((unsigned char *)data)[0] == 77);
  dlro_tensor_release(first);
  CHECK(open_descriptors() == before);
  checked("a writer of a read-only tensor gets its own pages, and nobody else sees what it writes");

  CHECK_OK(dlro_safetensors_map("large", DLRO_MAP_COPY_ON_WRITE, &archive));
  CHECK_OK(dlro_archive_tensor(archive, 0, &first));
  CHECK_OK(dlro_archive_tensor(archive, 1, &second));
  CHECK_OK(dlro_archive_tensor(archive, 0, &again));
  CHECK((first->flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0);
  CHECK_OK(dlro_tensor_data_mut(first, &data));
  ((unsigned char *)data)[2] = 88;
  CHECK_OK(dlro_tensor_data(again, &there));
  CHECK(((const unsigned char *)there)[2] == 88);
  CHECK_OK(dlro_tensor_data(second, &there));
  CHECK(((const unsigned char *)there)[0] == 3);
  options.access = DLRO_ACCESS_IMMUTABLE;
  options.copy = DLRO_COPY_NEVER;
  CHECK_STATUS(dlro_tensor_import(first, &options, &imported), DLRO_ERR_NOT_IMMUTABLE, "not immutable");
  CHECK(imported == NULL);
  checked("copy-on-write tensors are writable, show one memory, and are never called immutable");
  length = read_file("large", &file);
  CHECK(length == 8 + strlen(header) + LARGE + 3 && file[8 + strlen(header) + 2] == 2);
  free(file);
  dlro_tensor_release(first);
  dlro_tensor_release(again);
  dlro_tensor_release(second);
  dlro_archive_release(archive);
  checked("the file never changes");
}

static void many(void) {
  enum { MANY = 3000 };
  static char header[MANY * 80];
  dlro_archive *archive;
  struct DLManagedTensorVersioned *tensor;
  const void *data;
  char name[16];
  size_t length = 0, index;
  int i;
  /* Backwards, so that the header's order is not the file's. */
  for (i = MANY - 1; i >= 0; i--)
    length += (size_t)sprintf(header + length, "%c\"t%d\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                              i == MANY - 1 ? '{' : ',', i, i, i + 1);
  strcpy(header + length, "}");
  write_archive("many", header, MANY);
  CHECK_OK(dlro_safetensors_map("many", DLRO_MAP_READ_ONLY, &archive));
  CHECK(dlro_archive_count(archive) == MANY);
  for (i = 0; i < MANY; i++) {
    snprintf(name, sizeof name, "t%d", i);
    CHECK_OK(dlro_archive_find(archive, name, &index));
    CHECK(index == (size_t)i);
    CHECK_OK(dlro_archive_tensor(archive, index, &tensor));
    CHECK_OK(dlro_tensor_data(tensor, &data));
    CHECK(*(const unsigned char *)data == i % 256);
    dlro_tensor_release(tensor);
  }
  dlro_archive_release(archive);
  checked("3000 tensors, numbered as they lie in the file");
}

static void *take_tensors(void *archive) {
  int i;
  for (i = 0; i < 200; i++) {
    struct DLManagedTensorVersioned *tensor;
    const void *data;
    size_t index;
    CHECK_OK(dlro_archive_find((dlro_archive *)archive, "z", &index));
    CHECK_OK(dlro_archive_tensor((dlro_archive *)archive, index, &tensor));
    CHECK_OK(dlro_tensor_data(tensor, &data));
    CHECK(((const unsigned char *)data)[5] == 5);
    dlro_tensor_release(tensor);
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  dlro_archive *archive;
  int i;
  write_archive("two.safetensors", two, 34);
  CHECK_OK(dlro_safetensors_map("two.safetensors", DLRO_MAP_COPY_ON_WRITE, &archive));
  for (i = 0; i < 4; i++) CHECK(pthread_create(&all[i], NULL, take_tensors, archive) == 0);
  for (i = 0; i < 4; i++) CHECK(pthread_join(all[i], NULL) == 0);
  dlro_archive_release(archive);
  check_count = 4;
  checked("four threads share an archive");
}

static void refusals(void) {
  static const struct {
    const char *header;
    size_t data;
    dlro_status status;
    const char *sentence;
  } bad[] = {
      {"", 0, DLRO_ERR_FORMAT, "bad: at byte 8: expected a safetensors header, which begins with '{', found ''"},
      {"[]", 0, DLRO_ERR_FORMAT, "begins with '{', found '[]'"},
      {"{}x", 0, DLRO_ERR_FORMAT, "at byte 10: expected only spaces after the header's last '}', found 'x'"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 3, DLRO_ERR_FORMAT,
       "must have 65 bytes for what is asked of it, and has 64"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5, DLRO_ERR_FORMAT,
       "tensors end at byte 65, and it has 66: the rest belongs to no tensor"},
      {"{}", 1, DLRO_ERR_FORMAT, "belongs to no tensor"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, DLRO_ERR_FORMAT,
       "tensor 'a': its data_offsets begin at 1, and the tensors before it end at 0: a hole"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
       6, DLRO_ERR_FORMAT, "tensor 'b': its data_offsets begin at 2, and the tensors before it end at 4: they overlap"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
       "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
       8, DLRO_ERR_FORMAT, "expected every name only once, found 'a'"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, DLRO_ERR_FORMAT,
       "tensor 'a': its data_offsets hold 4 bytes, and its shape and dtype need 16"},
      {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, DLRO_ERR_FORMAT,
       "tensor 'a': its elements take 12 bits"},
      {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, DLRO_ERR_FORMAT,
       "no \\u0000 in a string"},
      {"{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16, DLRO_ERR_DTYPE,
       "dtype 'F128' is none that a safetensors file can have"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}", 0, DLRO_ERR_BOUNDS,
       "the number of elements does not fit"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775808],\"data_offsets\":[0,0]}}", 0, DLRO_ERR_BOUNDS,
       "a dimension in the file does not fit"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4, DLRO_ERR_FORMAT,
       "a decimal integer from 0 to 2^64 - 1, found '-4]"},
      {"{\"__metadata__\":{\"a\":1}}", 0, DLRO_ERR_FORMAT, "a string in double quotes, as all metadata is"}};
  const int before = open_descriptors();
  dlro_archive *archive;
  struct DLManagedTensorVersioned *tensor;
  const char *name, *value;
  size_t i, index;
  for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    archive = (dlro_archive *)&i;
    write_archive("bad", bad[i].header, bad[i].data);
    CHECK_STATUS(dlro_safetensors_map("bad", DLRO_MAP_READ_ONLY, &archive), bad[i].status, bad[i].sentence);
    CHECK(archive == NULL);
  }
  write_file("bad", "", 0);
  CHECK_STATUS(dlro_safetensors_map("bad", 0, &archive), DLRO_ERR_FORMAT,
               "must have 8 bytes for what is asked of it, and has 0");
  write_file("bad", "\x02\0\0\0\0\0\0\0{", 9);
  CHECK_STATUS(dlro_safetensors_map("bad", 0, &archive), DLRO_ERR_FORMAT,
               "must have 10 bytes for what is asked of it, and has 9");
  write_file("bad", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  CHECK_STATUS(dlro_safetensors_map("bad", 0, &archive), DLRO_ERR_FORMAT,
               "at byte 0: expected a header length of at most 100000000 bytes, found '\\xff");
  write_file("bad", "\x02\0\0\0\0\0\0\0\xff}", 10);
  CHECK_STATUS(dlro_safetensors_map("bad", 0, &archive), DLRO_ERR_FORMAT, "at byte 8: expected UTF-8, found '\\xff}'");
  CHECK_STATUS(dlro_safetensors_map(".", 0, &archive), DLRO_ERR_FORMAT, ".: it is not a regular file");
  CHECK(mkfifo("fifo", 0600) == 0);
  CHECK_STATUS(dlro_safetensors_map("fifo", 0, &archive), DLRO_ERR_FORMAT, "not a regular file");
  CHECK_STATUS(dlro_safetensors_map("missing", 0, &archive), DLRO_ERR_IO, "missing: open failed: No such file");
  CHECK_STATUS(dlro_safetensors_map("bad", 2, &archive), DLRO_ERR_ARGUMENT, "mode is 2");
  CHECK_STATUS(dlro_safetensors_map(NULL, 0, &archive), DLRO_ERR_NULL, "path is NULL");
  CHECK_STATUS(dlro_safetensors_map("bad", 0, NULL), DLRO_ERR_NULL, "out is NULL");
  CHECK(open_descriptors() == before);
  checked("what is wrong with a file is said, and the file is closed");

  write_archive("two.safetensors", two, 34);
  CHECK_OK(dlro_safetensors_map("two.safetensors", DLRO_MAP_READ_ONLY, &archive));
  index = 7;
  CHECK_STATUS(dlro_archive_find(archive, "q", &index), DLRO_ERR_ARGUMENT, "the name 'q' belongs to no tensor");
  CHECK(index == 0);
  CHECK_STATUS(dlro_archive_find(archive, NULL, &index), DLRO_ERR_NULL, "name is NULL");
  CHECK_STATUS(dlro_archive_find(archive, "z", NULL), DLRO_ERR_NULL, "index is NULL");
  CHECK_STATUS(dlro_archive_find(NULL, "z", &index), DLRO_ERR_NULL, "archive is NULL");
  name = "x";
  CHECK_STATUS(dlro_archive_name(archive, 4, &name), DLRO_ERR_BOUNDS, "index is 4, and there are 4 tensors");
  CHECK(name == NULL);
  CHECK_STATUS(dlro_archive_name(NULL, 0, &name), DLRO_ERR_NULL, "archive is NULL");
  CHECK_STATUS(dlro_archive_name(archive, 0, NULL), DLRO_ERR_NULL, "out is NULL");
  tensor = (struct DLManagedTensorVersioned *)&i;
  CHECK_STATUS(dlro_archive_tensor(archive, 4, &tensor), DLRO_ERR_BOUNDS, "there are 4 tensors");
  CHECK(tensor == NULL);
  CHECK_STATUS(dlro_archive_tensor(NULL, 0, &tensor), DLRO_ERR_NULL, "archive is NULL");
  CHECK_STATUS(dlro_archive_tensor(archive, 0, NULL), DLRO_ERR_NULL, "out is NULL");
  value = "x";
  CHECK_STATUS(dlro_archive_metadata(archive, 2, &name, &value), DLRO_ERR_BOUNDS, "there are 2 metadata entries");
  CHECK(name == NULL && value == NULL);
  CHECK_STATUS(dlro_archive_metadata(NULL, 0, &name, &value), DLRO_ERR_NULL, "archive is NULL");
  CHECK_STATUS(dlro_archive_metadata(archive, 0, NULL, &value), DLRO_ERR_NULL, "key is NULL");
  CHECK_STATUS(dlro_archive_metadata(archive, 0, &name, NULL), DLRO_ERR_NULL, "value is NULL");
  dlro_archive_release(archive);
  dlro_archive_release(NULL);
  CHECK(dlro_archive_count(NULL) == 0 && dlro_archive_metadata_count(NULL) == 0);

  write_archive("empty", " {} ", 0);
  CHECK_OK(dlro_safetensors_map("empty", DLRO_MAP_COPY_ON_WRITE, &archive));
  CHECK(dlro_archive_count(archive) == 0 && dlro_archive_metadata_count(archive) == 0);
  CHECK(open_descriptors() == before);
  dlro_archive_release(archive);
  checked("wrong calls are refused, outputs zeroed, and an archive may be empty");
}

int main(void) {
  enter_folder();
  names_and_tensors();
  every_dtype();
  writers();
  many();
  threads();
  refusals();
  leave_folder();
  return 0;
}
