/* Stands in for a DLPack 2 that does not exist yet: nothing is known of it but its version. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#define DLPACK_MAJOR_VERSION 2
#define DLPACK_MINOR_VERSION 0
#endif
