"""The same file handed to real NumPy through nothing but ctypes and a PyCapsule: it arrives read-only.

Usage: numpy_reader.py LIBRARY FILE.npy
"""

import ctypes
import sys

import numpy as np

library = ctypes.CDLL(sys.argv[1])
library.dlro_last_error_message.restype = ctypes.c_char_p

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Exported(ctypes.Structure):
    _fields_ = [
        ("versioned", ctypes.c_void_p),
        ("legacy", ctypes.c_void_p),
        ("capsule_name", ctypes.c_char_p),
        ("used_capsule_name", ctypes.c_char_p),
    ]


def check(status):
    if status != 0:
        raise BufferError(library.dlro_last_error_message().decode())


class Mapped:
    """An array library's object, as small as it can be."""

    def __init__(self, path):
        self.tensor = ctypes.c_void_p()
        check(library.dlro_npy_map(path.encode(), 0, ctypes.byref(self.tensor)))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        share = ctypes.c_void_p()
        check(library.dlro_tensor_share(self.tensor, 1, None, ctypes.byref(share)))
        exported = Exported()
        version = Version(*max_version) if max_version else None
        status = library.dlro_tensor_export_for(
            share, ctypes.byref(version) if version else None, None, ctypes.byref(exported)
        )
        if status != 0:
            message = library.dlro_last_error_message().decode()
            library.dlro_tensor_release(share)
            raise BufferError(message)
        return new_capsule(exported.versioned or exported.legacy, exported.capsule_name, None)


source = Mapped(sys.argv[2])
array = np.from_dlpack(source)
print(f"  NumPy {np.__version__} got {array.dtype}{list(array.shape)}, flags.writeable is {array.flags.writeable}")
try:
    array[(0,) * array.ndim] = 99
    sys.exit("NumPy wrote to it")
except ValueError as error:
    print(f"  writing to it: ValueError: {error}")
try:
    source.__dlpack__()  # a consumer that knows the legacy struct only
    sys.exit("a read-only tensor went out without its flag")
except BufferError as error:
    print(f"  a consumer of the legacy struct: BufferError: {error}")
same = np.array_equal(array, np.load(sys.argv[2], mmap_mode="r"), equal_nan=array.dtype.kind in "fc")
print(f"  its elements are {'those of' if same else 'NOT those of'} numpy.load")
sys.exit(0 if same else 1)
