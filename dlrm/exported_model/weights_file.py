"""File of a model's weights, in the format of safetensors, that is filled in place."""

import json
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

_LENGTH_BYTES, _FLOAT_BYTES = 8, 4


class NewWeights:
    """Tensors that lie in a new file."""

    def __init__(self, tensors: dict[str, torch.Tensor], mapping: mmap.mmap) -> None:
        self.tensors, self._mapping = tensors, mapping

    def release(self) -> None:
        """Take what was written so far out of this process's memory; it stays in the file."""
        self._mapping.madvise(mmap.MADV_DONTNEED)


def map_new_weights(path: Path, shapes: Mapping[str, Sequence[int]]) -> NewWeights:
    """Create a file for float32 tensors of these shapes, by name, and return the tensors: they lie in the file.

    The kernel writes their pages back where memory is short, so that weights from the memory of several machines can
    be written on one. Their space is reserved first: a page that found none would end the process. Raises OSError.
    """
    entries: dict[str, dict[str, object]] = {}
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape)
        spans[name] = (begin, end)
        offsets = [begin * _FLOAT_BYTES, end * _FLOAT_BYTES]
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)  # so that the floats are aligned
    num_floats = (_LENGTH_BYTES + len(header)) // _FLOAT_BYTES + end
    # glibc reads the file where the file system cannot reserve space itself.
    with path.open("w+b") as file:
        file.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
        file.flush()
        os.posix_fallocate(file.fileno(), 0, num_floats * _FLOAT_BYTES)
        mapping = mmap.mmap(file.fileno(), num_floats * _FLOAT_BYTES)
    floats, first = torch.frombuffer(mapping, dtype=torch.float32), num_floats - end
    tensors = {
        name: floats[first + begin : first + end].view(tuple(shapes[name])) for name, (begin, end) in spans.items()
    }
    return NewWeights(tensors, mapping)
