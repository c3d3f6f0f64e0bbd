"""Chapter files beside its peers: the bytes of numpy.save and safetensors, and safetensors' verdict on damaged files.

python tests/python/files.py libdlpack_ro.so          (needs numpy, safetensors and ml_dtypes)
"""

import ctypes
import os
import random
import sys
import tempfile
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy


class DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("dtype", DataType), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class Managed(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", Tensor)]


lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
lib.dlro_last_error_message.restype = c_char_p
lib.dlro_archive_count.restype = lib.dlro_archive_metadata_count.restype = c_size_t
for name in ["count", "metadata_count", "release"]:
    getattr(lib, "dlro_archive_" + name).argtypes = [c_void_p]
lib.dlro_archive_name.argtypes = lib.dlro_archive_tensor.argtypes = [c_void_p, c_size_t, c_void_p]
lib.dlro_archive_metadata.argtypes = [c_void_p, c_size_t, c_void_p, c_void_p]
lib.dlro_archive_find.argtypes = [c_void_p, c_char_p, c_void_p]
lib.dlro_tensor_release.argtypes = [c_void_p]
lib.dlro_tensor_release.restype = lib.dlro_archive_release.restype = None
lib.dlro_tensor_export.argtypes = [c_void_p, c_uint64, c_uint32, c_void_p, c_void_p, c_void_p]
lib.dlro_npy_save.argtypes = [c_char_p, c_void_p]
lib.dlro_safetensors_save.argtypes = [c_char_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]


class Refused(Exception):
    pass


def call(function, *arguments):
    if function(*arguments) != 0:
        raise Refused(lib.dlro_last_error_message().decode(errors="replace"))


# NumPy's name, DLPack's numbers, and the format's name where it has one
DTYPES = {"bool": (6, 8), "int8": (0, 8), "uint8": (1, 8), "int16": (0, 16), "uint16": (1, 16), "float16": (2, 16),
          "int32": (0, 32), "uint32": (1, 32), "float32": (2, 32), "complex64": (5, 64), "float64": (2, 64),
          "int64": (0, 64), "uint64": (1, 64), "longdouble": (2, 128), "complex128": (5, 128), "bfloat16": (4, 16),
          "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8), "float8_e8m0fnu": (14, 8)}
NPY = [name for name, (code, _) in DTYPES.items() if code in (0, 1, 2, 5, 6)]
# What safetensors.numpy takes.
PYTHON = ["bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "float64", "int64",
          "uint64", "complex64", "bfloat16"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


class Given:
    """A managed tensor over an array, whatever its dtype and strides."""

    def __init__(self, array, name):
        item = array.dtype.itemsize
        assert all(stride % item == 0 for stride in array.strides)
        self.keep = (array, (c_int64 * max(array.ndim, 1))(*array.shape),
                     (c_int64 * max(array.ndim, 1))(*(stride // item for stride in array.strides)))
        code, bits = DTYPES[name]
        layout = Tensor(array.__array_interface__["data"][0], 1, 0, array.ndim, DataType(code, bits, 1), self.keep[1],
                        self.keep[2], 0)
        self.pointer = c_void_p()
        call(lib.dlro_tensor_export, byref(layout), 0, 1, None, None, byref(self.pointer))

    def __del__(self):
        lib.dlro_tensor_release(self.pointer)


def save(path, tensors, metadata):
    """tensors: name -> (array, dtype's name)"""
    given = [Given(*value) for value in tensors.values()]
    names = (c_char_p * max(len(given), 1))(*(name.encode() for name in tensors))
    pointers = (c_void_p * max(len(given), 1))(*(one.pointer for one in given))
    keys = (c_char_p * max(len(metadata), 1))(*(key.encode() for key in metadata))
    values = (c_char_p * max(len(metadata), 1))(*(value.encode() for value in metadata.values()))
    call(lib.dlro_safetensors_save, path.encode(), len(given), names, pointers, len(metadata), keys, values)


def load(path):
    """Everything in a file: name -> (dtype's numbers, shape, bytes), in its order, and the metadata."""
    archive, name, value, tensor, number = c_void_p(), c_char_p(), c_char_p(), POINTER(Managed)(), c_size_t()
    call(lib.dlro_safetensors_map, path.encode(), 0, byref(archive))
    try:
        found, metadata = {}, {}
        for index in range(lib.dlro_archive_count(archive)):
            call(lib.dlro_archive_name, archive, index, byref(name))
            call(lib.dlro_archive_find, archive, name.value, byref(number))
            assert number.value == index
            call(lib.dlro_archive_tensor, archive, index, byref(tensor))
            view = tensor.contents.tensor
            shape = tuple(view.shape[axis] for axis in range(view.ndim))
            bits = view.dtype.bits
            for dimension in shape:
                bits *= dimension
            found[name.value.decode()] = ((view.dtype.code, view.dtype.bits), shape,
                                          ctypes.string_at(view.data, bits // 8) if bits else b"")
            lib.dlro_tensor_release(tensor)
        for index in range(lib.dlro_archive_metadata_count(archive)):
            call(lib.dlro_archive_metadata, archive, index, byref(name), byref(value))
            metadata[name.value.decode()] = value.value.decode()
        return found, metadata
    finally:
        lib.dlro_archive_release(archive)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def layouts(dtype):
    """Arrays of one dtype in every layout."""
    def count(*shape):
        size = int(np.prod(shape, dtype=np.int64)) if shape else 1
        return (np.arange(size) % 3).astype(dtype).reshape(shape)

    base = count(4, 6, 5)
    yield from (base, count(), count(0), count(3, 0, 2), count(7), count(1, 1), count(1, 5, 1), count(2, 1, 3))
    yield from (np.asfortranarray(base), base.T, base.transpose(1, 0, 2), base[::-1], base[:, ::-2, 1:4], base[2, 3, 1:],
                base[:, :1, :1], base[:0], np.broadcast_to(base[0, 0], (3, 2, 5)), base[..., None].swapaxes(0, 3),
                np.asfortranarray(count(1, 5)), np.asfortranarray(count(3, 1, 4))[:, :, ::2], count(64, 1)[::2])
    yield count(*[1] * 30, 2)


def npy():
    cases = 0
    for name in NPY:
        for array in layouts(dtype_of(name)):
            np.save("theirs.npy", array)
            given = Given(array, name)
            call(lib.dlro_npy_save, b"ours.npy", given.pointer)
            assert content("ours.npy") == content("theirs.npy"), (name, array.shape, array.strides)
            cases += 1
    for array, name in [(np.arange(3_000_000.0).reshape(1000, 3000)[:, ::2], "float64"),
                        (np.arange(3_000_000.0).reshape(10, 300, 1000).transpose(2, 0, 1), "float64"),
                        (np.arange(3_000_000)[::-1], "int64")]:
        np.save("theirs.npy", array)
        given = Given(array, name)
        call(lib.dlro_npy_save, b"ours.npy", given.pointer)
        assert content("ours.npy") == content("theirs.npy")
        cases += 1
    print(f"{cases} arrays saved byte for byte as numpy.save {np.__version__} saves them")


def archives():
    rng = random.Random(1)
    words = ["w", "layer.0.weight", "\u0394", "\"", "a\\b\n\t\r\b\f", "\x01\x7f", "\U0001f600", "__metadata", "A", "a"]
    cases = tensors = 0
    for _ in range(400):
        given = {}
        for _ in range(rng.randrange(9)):
            name = rng.choice(PYTHON)
            array = rng.choice(list(layouts(dtype_of(name))))
            given[rng.choice(words) + str(rng.randrange(4))] = (array, name)
        metadata = rng.choice([None, {"format": "np"}, {"\u0394\"": "\x02"}])
        dense = {key: np.ascontiguousarray(array).reshape(array.shape) for key, (array, _) in given.items()}
        safetensors.numpy.save_file(dense, "theirs.safetensors", metadata=metadata)
        save("ours.safetensors", given, metadata or {})
        assert content("ours.safetensors") == content("theirs.safetensors"), given.keys()
        back = safetensors.numpy.load_file("ours.safetensors")
        assert back.keys() == dense.keys()
        for key, array in back.items():
            assert array.tobytes() == dense[key].tobytes() and array.shape == dense[key].shape
        found, ours = load("theirs.safetensors")
        with safetensors.safe_open("theirs.safetensors", framework="np") as peer:
            # Those without elements may stand anywhere among those of the same place.
            order = [key for key in peer.offset_keys() if dense[key].size]
            assert [key for key in found if dense[key].size] == order and found.keys() == dense.keys()
            assert ours == (peer.metadata() or {})
        for key, (numbers, shape, data) in found.items():
            assert numbers == DTYPES[given[key][1]] and shape == dense[key].shape and data == dense[key].tobytes()
        cases, tensors = cases + 1, tensors + len(given)
    print(f"{cases} archives of {tensors} tensors saved byte for byte as safetensors {safetensors.__version__} saves them, "
          "each read by the other")
    many = {f"k{number}": str(number) for number in range(20)}
    save("ours.safetensors", {}, many)
    with safetensors.safe_open("ours.safetensors", framework="np") as peer:
        assert peer.metadata() == many
    for name in ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"]:
        array = np.arange(8).astype(dtype_of(name))
        save("ours.safetensors", {"t": (array, name)}, {})
        with safetensors.safe_open("ours.safetensors", framework="np") as peer:
            assert peer.get_slice("t").get_shape() == [8]
        assert load("ours.safetensors")[0]["t"] == (DTYPES[name], (8,), array.tobytes())
    print("twenty pairs of metadata; bfloat16 and float8")


ALLOWED = ["every name only once", "no \\u0000 in a string", "a dimension in the file does not fit",
           "an object that describes the tensor, which begins with '{', found '[", "a dtype in double quotes, found '{"]


def damaged():
    rng = random.Random(2)
    seeds = []
    for metadata in [None, {"a": "b"}]:
        given = {"w": np.ones((2, 3), np.float32), "v\u0394": np.ones(8, np.int16), "e": np.ones((0, 4), np.uint8)}
        safetensors.numpy.save_file(given, "seed", metadata=metadata)
        seeds.append(content("seed"))
    taken = refused = stricter = 0
    for _ in range(20_000):
        data = bytearray(rng.choice(seeds))
        header = int.from_bytes(data[:8], "little")
        for _ in range(rng.choice([1, 1, 2])):
            at = 8 + rng.randrange(header) if rng.random() < 0.95 else rng.randrange(8)
            kind = rng.randrange(5)
            if at >= len(data):
                continue
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.choice(b"{}[]\":,\\u0123456789eE+-. ")
            elif kind == 2 and at >= 8:
                shorter = rng.random() < 0.5
                data[at:at + 1] = b"" if shorter else bytes([data[at], rng.choice(b" 0,\"")])
                data[:8] = (header - 1 if shorter else header + 1).to_bytes(8, "little")
            elif kind == 3:
                data = data[:at]
            else:
                data.append(0)
        with open("damaged", "wb") as file:
            file.write(data)
        try:
            with safetensors.safe_open("damaged", framework="np") as peer:
                keys = list(peer.offset_keys())
        except Exception:
            keys = None
        try:
            found = list(load("damaged")[0])
        except Refused as error:
            found, sentence = None, str(error)
        if keys is None:
            assert found is None, (bytes(data), "only ours takes it")
            refused += 1
        elif found is None:
            assert any(allowed in sentence for allowed in ALLOWED), (bytes(data), sentence)
            stricter += 1
        else:
            assert keys == found
            taken += 1
    assert taken > 200 and refused > 200, (taken, refused)
    print(f"20000 damaged files: {taken} taken and {refused} refused by both, {stricter} refused by ours alone, as documented")


with tempfile.TemporaryDirectory(dir=".") as folder:
    os.chdir(folder)
    npy()
    archives()
    damaged()
    assert not [name for name in os.listdir(".") if name.endswith(".tmp")]
    os.chdir("..")
