"""Reads the preprocessed header with cffi and calls the library. Usage: cffi_reads.py HEADER LIBRARY FUNCTION..."""
import sys

import cffi

path, library, *functions = sys.argv[1:]
ffi = cffi.FFI()
with open(path) as file:
    ffi.cdef(file.read())
lib = ffi.dlopen(library)

assert len(functions) > 0
for name in functions:
    assert ffi.typeof(getattr(lib, name)).kind == "function", name
assert lib.DLRO_OK == 0 and lib.DLRO_ERR_READ_ONLY == 1 and lib.kDLTrn == 18 and lib.kDLFloat4_e2m1fn == 17
assert ffi.sizeof("dlro_status") == 4 and ffi.sizeof("dlro_import_options") == 40
assert ffi.sizeof("DLManagedTensorVersioned") == 80 and ffi.offsetof("DLManagedTensorVersioned", "dl_tensor") == 32
assert ffi.typeof("DLDeviceType").elements[1] == "kDLCPU"
assert ffi.string(lib.dlro_version_string()).count(b".") == 2

released = []
release = ffi.callback("void(void *)", lambda owner: released.append(ffi.from_handle(owner)))
owner = ffi.new_handle("owner")
elements = ffi.new("float[6]", [0, 1, 2, 3, 4, 5])
shape = ffi.new("int64_t[2]", [2, 3])
layout = ffi.new("DLTensor *", {"data": elements, "device": {"device_type": lib.kDLCPU}, "ndim": 2,
                                "dtype": {"code": lib.kDLFloat, "bits": 32, "lanes": 1}, "shape": shape})
out = ffi.new("struct DLManagedTensorVersioned **")
status = lib.dlro_tensor_export(layout, 0, lib.DLRO_MUTABILITY_READ_ONLY, owner, release, out)
assert status == lib.DLRO_OK, ffi.string(lib.dlro_last_error_message())
tensor = out[0]
assert tensor.flags == 1 and tensor.dl_tensor.strides[0] == 3 and tensor.dl_tensor.data == elements
pointer = ffi.new("void **")
assert lib.dlro_tensor_data_mut(tensor, pointer) == lib.DLRO_ERR_READ_ONLY and pointer[0] == ffi.NULL
assert b"read-only" in ffi.string(lib.dlro_last_error_message())
assert released == []
tensor.deleter(tensor)
assert released == ["owner"]
print(f"{len(functions)} functions, constants, layouts, an export and its release")
