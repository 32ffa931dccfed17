"""Tensors on a GPU for tests: those of torch where there is a GPU, and where its kernels are emulated on the CPU
(VARVE_CUDA_EMULATED=1, whose device memory is the host's) arrays that say that they lie there."""

import ctypes
import os

import numpy as np
import pytest

import varve

EMULATED = os.environ.get("VARVE_CUDA_EMULATED") == "1"
CODES = {"float32": (2, 32), "float16": (2, 16), "uint16": (4, 16)}  # uint16: the bits of bfloat16


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]


class DeviceArray:
    """A NumPy array as a tensor of a GPU, by DLPack's protocol. `streams` are those that consumers have named."""

    def __init__(self, array, index=0):
        self.array, self.index, self.streams, self.exports = array, index, [], []

    def __dlpack_device__(self):
        return 2, self.index

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        array = self.array
        code, bits = CODES[array.dtype.name]
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        tensor = _Tensor(array.ctypes.data, 2, self.index, array.ndim, code, bits, 1, sizes, strides, 0, None, None)
        self.exports.append(tensor)  # capsules may live as long as the array does
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(tensor), b"dltensor", None)


def need_gpu():
    """Skips where caches on a GPU cannot be made, and says why. With VARVE_NEED_GPU=1 that is a failure: on a machine
    with a GPU a defect in making caches must not pass for a missing GPU."""
    try:
        varve.Cache(varve.Shape(num_layers=1, num_kv_heads=1, key_dim=64), device="cuda")
    except varve.Error as error:
        if os.environ.get("VARVE_NEED_GPU") == "1":
            raise
        pytest.skip(f"no GPU: {error}", allow_module_level=True)
    if not EMULATED:
        pytest.importorskip("torch", reason="torch is not installed, whose tensors lie on the GPU")


def to_gpu(array):
    """float32, float16, or uint16 for bfloat16. Strides stay."""
    if EMULATED:
        return DeviceArray(array)
    import torch

    tensor = torch.empty_strided(array.shape, [s // array.itemsize for s in array.strides], dtype=torch.float32, device="cuda")
    if array.dtype == np.uint16:
        return tensor.to(torch.bfloat16).copy_(torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16))
    return tensor.to(torch.from_numpy(array.copy()).dtype).copy_(torch.from_numpy(array.copy()))


def to_host(tensor):
    """As float32."""
    array = tensor.array if EMULATED else tensor.float().cpu().numpy()
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
