"""Opening files, and making a mapped read-only tensor writable, beside NumPy and the Python package safetensors.

Medians of one run; files of 4 GiB are sparse. Usage: files.py LIBRARY
"""

import ctypes
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

try:
    from safetensors import safe_open
except ImportError:
    safe_open = None

library = ctypes.CDLL(sys.argv[1])
library.dlro_last_error_message.restype = ctypes.c_char_p
READ_ONLY, WRITE, ALWAYS = 0, 1, 2


class ImportOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint32)
        for name in ("access", "copy", "layout", "flags", "alignment", "device_type", "device_id", "threads")
    ]


def check(status):
    if status != 0:
        raise OSError(library.dlro_last_error_message().decode())


def open_npy(path):
    tensor = ctypes.c_void_p()
    check(library.dlro_npy_map(path, READ_ONLY, ctypes.byref(tensor)))
    return tensor


def open_and_close_npy(path):
    library.dlro_tensor_release(open_npy(path))


def open_and_close_safetensors(path):
    archive, tensor = ctypes.c_void_p(), ctypes.c_void_p()
    check(library.dlro_safetensors_map(path, READ_ONLY, ctypes.byref(archive)))
    check(library.dlro_archive_tensor(archive, ctypes.c_size_t(0), ctypes.byref(tensor)))
    library.dlro_tensor_release(tensor)
    library.dlro_archive_release(archive)


def peer_safetensors(path):
    with safe_open(path, framework="numpy") as archive:
        archive.get_slice("x")


def median(functions, rounds):
    times = [[] for _ in functions]
    for number in range(rounds + 1):
        for function, taken in zip(functions, times):
            start = time.perf_counter()
            function()
            if number:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def sparse_npy(path, nbytes):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (nbytes // 4,)}
        )
        file.truncate(file.tell() + nbytes)


def sparse_safetensors(path, nbytes):
    header = b'{"x":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (nbytes // 4, nbytes)
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + nbytes)


def writable(path, copy):
    """Imports a mapped tensor for writing and writes one element; answers the seconds it took."""
    tensor, mine, data = open_npy(path), ctypes.c_void_p(), ctypes.c_void_p()
    options = ImportOptions(ctypes.sizeof(ImportOptions), access=WRITE, copy=copy)
    start = time.perf_counter()
    check(library.dlro_tensor_import(tensor, ctypes.byref(options), ctypes.byref(mine)))
    check(library.dlro_tensor_data_mut(mine, ctypes.byref(data)))
    ctypes.c_float.from_address(data.value).value = 1
    taken = time.perf_counter() - start
    library.dlro_tensor_release(mine)
    return taken


RESIDENT = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
def resident():
    return int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])
before, tensor = resident(), ctypes.c_void_p()
assert library.dlro_npy_map(sys.argv[2].encode(), 0, ctypes.byref(tensor)) == 0
print(resident() - before)
"""

with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
    print(f"opening and closing a file, microseconds; NumPy {np.__version__}")
    print(f"  {'':28}{'dlpack_ro':>12}{'peer':>12}{'ratio':>8}")
    for size, label in ((1 << 20, "1 MiB"), (4 << 30, "4 GiB, sparse")):
        path = os.path.join(folder, "x.npy")
        sparse_npy(path, size)
        ours, peer = median(
            [lambda: open_and_close_npy(path.encode()), lambda: np.load(path, mmap_mode="r")], 300
        )
        print(f"  {'.npy, ' + label:28}{ours * 1e6:12.1f}{peer * 1e6:12.1f}{ours / peer:8.2f}")
        grown = subprocess.check_output([sys.executable, "-c", RESIDENT, sys.argv[1], path], text=True)
        print(f"  {'  resident memory, KiB':28}{int(grown):12}")
    if safe_open is not None and hasattr(library, "dlro_safetensors_map"):
        for size, label in ((1 << 20, "1 MiB"), (4 << 30, "4 GiB, sparse")):
            path = os.path.join(folder, "x.safetensors")
            sparse_safetensors(path, size)
            ours, peer = median(
                [lambda: open_and_close_safetensors(path.encode()), lambda: peer_safetensors(path)], 300
            )
            print(f"  {'safetensors, ' + label:28}{ours * 1e6:12.1f}{peer * 1e6:12.1f}{ours / peer:8.2f}")

    path = os.path.join(folder, "large.npy").encode()
    sparse_npy(path.decode(), 1 << 30)
    private = statistics.median(writable(path, 0) for _ in range(21))
    copied = statistics.median(writable(path, ALWAYS) for _ in range(3))
    print("making a mapped read-only tensor of 1 GiB writable, and writing one element, milliseconds")
    print(f"  private mapping {private * 1e3:.3f}, full copy {copied * 1e3:.0f}, ratio 1/{copied / private:.0f}")
