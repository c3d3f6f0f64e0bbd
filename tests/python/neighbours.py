"""What other programs see of sealed memory, and what Python's faulthandler sees after the guard.

python tests/python/neighbours.py libdlpack_ro.so          (needs numpy)
"""

import ctypes
import os
import signal
import subprocess
import sys

import numpy as np

library = ctypes.CDLL(sys.argv[1])
library.dlro_last_error_message.restype = ctypes.c_char_p
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype = ctypes.c_void_p
get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def check(status):
    if status != 0:
        raise OSError(library.dlro_last_error_message().decode())


def seal(array):
    capsule = array.__dlpack__(max_version=(1, 0))
    tensor, fd = ctypes.c_void_p(get_pointer(capsule, b"dltensor_versioned")), ctypes.c_int()
    check(library.dlro_tensor_seal(tensor, ctypes.byref(fd)))
    return fd.value


READER = """
import sys, numpy as np
array = np.load(f"/proc/self/fd/{sys.argv[1]}", mmap_mode="r")
print(array.dtype, array.shape, array.flags.f_contiguous, array.sum())
"""
for array in (np.arange(12.0).reshape(3, 4), np.arange(12, dtype=np.int16).reshape(3, 4).T, np.zeros((0, 2), bool)):
    fd = seal(array)
    seen = subprocess.check_output([sys.executable, "-c", READER, str(fd)], pass_fds=[fd], text=True).strip()
    expected = f"{array.dtype} {array.shape} {array.flags.f_contiguous} {array.sum()}"
    assert seen == expected, (seen, expected)
    try:
        os.pwrite(fd, b"x", 200)
        sys.exit("sealed memory was written")
    except PermissionError:
        pass
    os.close(fd)
print("another process maps sealed memory with nothing but NumPy")

# A child, since it dies: the guard's report comes first, then the one that faulthandler was installed for.
WRITER = """
import ctypes, faulthandler, sys
faulthandler.enable()
library = ctypes.CDLL(sys.argv[1])
tensor, watch, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert library.dlro_guard_install() == 0
assert library.dlro_npy_map(sys.argv[2].encode(), 0, ctypes.byref(tensor)) == 0
assert library.dlro_guard_watch(tensor, b"weights", ctypes.byref(watch)) == 0
assert library.dlro_tensor_data(tensor, ctypes.byref(data)) == 0
ctypes.c_float.from_address(data.value + 8).value = 1
"""
np.save("watched.npy", np.zeros((2, 3), np.float32))
child = subprocess.run([sys.executable, "-c", WRITER, sys.argv[1], "watched.npy"], capture_output=True, text=True)
os.remove("watched.npy")
assert child.returncode == -signal.SIGSEGV, child
report, python = child.stderr.find("wrote to the read-only tensor 'weights'"), child.stderr.find("Segmentation fault")
assert 0 <= report < python, child.stderr
assert "index [0, 2]" in child.stderr, child.stderr
print("the guard names the tensor, and Python's faulthandler reports after it")
