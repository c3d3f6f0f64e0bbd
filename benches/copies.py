"""Copies of one thread in GB/s of the result, beside memcpy, NumPy and (where it is installed) PyTorch.

Everything is measured in one run, in turn, over buffers that were touched before; the median counts. The ratio is
to memcpy of as many bytes. Usage: copies.py LIBRARY [PART OF A NAME]
"""

import ctypes
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

ROUNDS = 7
library = ctypes.CDLL(sys.argv[1])
library.dlro_last_error_message.restype = ctypes.c_char_p
memcpy = ctypes.CDLL(None).memcpy
memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype = ctypes.c_void_p
get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

# NumPy's dtypes by item size, and PyTorch's.
DTYPES = {1: np.uint8, 2: np.int16, 4: np.float32, 8: np.float64, 16: np.complex128}


def managed(array):
    """The managed tensor of a NumPy array, kept alive by its capsule."""
    capsule = array.__dlpack__(max_version=(1, 0))
    return capsule, ctypes.c_void_p(get_pointer(capsule, b"dltensor_versioned"))


def contestants(source, target):
    """Each one's name and a function that copies source over target."""
    keep, source_tensor = managed(source)
    keep_too, target_tensor = managed(target)
    nbytes = target.nbytes
    a, b = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)

    def ours(keep=(keep, keep_too)):
        if library.dlro_tensor_copy_into(source_tensor, target_tensor) != 0:
            raise BufferError(library.dlro_last_error_message().decode())

    yield "memcpy", lambda: memcpy(b.ctypes.data, a.ctypes.data, nbytes)
    yield "dlpack_ro", ours
    yield "numpy", lambda: np.copyto(target, source)
    if torch is not None:
        t, s = torch.from_numpy(target), torch.from_numpy(source)
        yield "torch", lambda: t.copy_(s)


def measure(label, source):
    target = np.ones(source.shape, source.dtype)
    pairs = list(contestants(source, target))
    times = {name: [] for name, _ in pairs}
    for round_number in range(ROUNDS + 1):
        for name, copy in pairs:
            start = time.perf_counter()
            copy()
            if round_number:
                times[name].append(time.perf_counter() - start)
        if not round_number:
            target[...] = 0
            pairs[1][1]()
            assert np.array_equal(target, source), label
    rates = {name: target.nbytes / statistics.median(taken) / 1e9 for name, taken in times.items()}
    cells = "".join(f"{rates[name]:9.2f} {rates[name] / rates['memcpy']:6.2f}" for name in times)
    print(f"  {label:44}{cells}", flush=True)
    return {name: rates[name] / rates["memcpy"] for name in rates}


def base(shape, item=4):
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.uint32) % 251).astype(DTYPES[item]).reshape(shape)


def cases():
    yield "contiguous (4096, 4096)", base((4096, 4096))
    for item in DTYPES:
        side = {1: 8192, 2: 8192, 4: 4096, 8: 4096, 16: 2048}[item]
        yield f"({side}, {side}) transposed, {item} bytes", base((side, side), item).T
    for item in DTYPES:
        yield f"(256, 256, 256) reversed, {item} bytes", base((256, 256, 256), item).transpose(2, 1, 0)
    yield "(64, 64, 64, 64) by (3, 1, 2, 0)", base((64, 64, 64, 64)).transpose(3, 1, 2, 0)
    yield "(512, 64, 1024) by (1, 0, 2)", base((512, 64, 1024)).transpose(1, 0, 2)
    for item in (1, 4, 8):
        yield f"every second column, {item} bytes", base((4096, 8192), item)[:, ::2]
    yield "broadcast row to (4096, 4096)", np.broadcast_to(base((1, 4096)), (4096, 4096))
    yield "broadcast column to (4096, 4096)", np.broadcast_to(base((4096, 1)), (4096, 4096))


names = ["memcpy", "dlpack_ro", "numpy"] + (["torch"] if torch is not None else [])
print(f"copies, one thread, GB/s of the result and ratio to memcpy; NumPy {np.__version__}, ", end="")
print(f"PyTorch {torch.__version__}" if torch is not None else "PyTorch not installed")
print(f"  {'':44}" + "".join(f"{name:>16}" for name in names))
wanted = sys.argv[2] if len(sys.argv) > 2 else ""
results = [measure(label, source) for label, source in cases() if wanted in label]
worst = min(result["dlpack_ro"] for result in results)
beaten = sum(result["dlpack_ro"] < max(result[name] for name in names[2:]) for result in results)
print(f"  the worst ratio of dlpack_ro to memcpy is {worst:.2f}; a peer was faster in {beaten} of {len(results)} cases")
