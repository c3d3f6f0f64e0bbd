/* Stands in for DLPack 0.4: DLContext, no DLDevice, and the version in octal. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#define DLPACK_VERSION 040
typedef struct {
  int device_type;
  int device_id;
} DLContext;
#endif
