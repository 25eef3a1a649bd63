"""Reads a GGUF file: its metadata and its tensors, as float64 arrays.

Only what the reference needs: one little-endian file of version 2 or 3. It checks enough to fail with a sentence on a
file that is cut short; hostile files are the business of the engine's own reader.

Source: the GGUF description in ggml's repository (docs/gguf.md).
"""

import math
import mmap
import struct
from dataclasses import dataclass

import blocks

# Value types of metadata, by their number in the file, as `struct` formats.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies and how it is stored. `shape` is outermost first; `start` counts bytes from the file's start."""

    name: str
    shape: tuple
    type_id: int
    start: int


class GgufFile:
    """One opened file. `metadata` maps a key to its value; `tensors` maps a name to its `TensorInfo`."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            # A map, so that a model of many gigabytes costs only the tensors that are asked for.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        self.metadata, self.tensors = {}, {}
        self._read_header()

    def tensor(self, name):
        """The values of tensor `name`: float64, shape outermost first."""
        return self._values(self._info(name))

    def expert(self, name, index):
        """Matrix `index` of the fused tensor `name` of shape [n_experts, rows, cols]: float64 [rows, cols]."""
        info = self._info(name)
        n_experts, rows, cols = info.shape
        if not 0 <= index < n_experts:
            raise IndexError(f"{self.path}: tensor `{name}` has {n_experts} experts, not an expert {index}")
        start = info.start + index * blocks.stored_bytes(info.type_id, rows * cols)
        return self._values(TensorInfo(name, (rows, cols), info.type_id, start))

    def _info(self, name):
        if name not in self.tensors:
            raise KeyError(f"{self.path}: the file has no tensor `{name}`")
        return self.tensors[name]

    def _values(self, info):
        block = blocks.BLOCKS.get(info.type_id)
        if block is None:
            raise ValueError(f"{self.path}: tensor `{info.name}` has type {info.type_id}, which the reference cannot read")
        if info.shape[-1] % block.values:
            raise ValueError(
                f"{self.path}: tensor `{info.name}` has rows of {info.shape[-1]} values, "
                f"not a multiple of the {block.values} in a block of {block.name}"
            )
        stored = blocks.stored_bytes(info.type_id, math.prod(info.shape))
        raw = self._bytes[info.start : info.start + stored]
        if len(raw) != stored:
            raise ValueError(f"{self.path}: tensor `{info.name}` ends after the end of the file")
        return blocks.decode(info.type_id, raw).reshape(info.shape)

    def _read_header(self):
        if self._take(4) != b"GGUF":
            raise ValueError(f"{self.path}: not a GGUF file")
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"{self.path}: GGUF version {version}, expected 2 or 3, little-endian")
        n_tensors, n_keys = self._scalar("Q"), self._scalar("Q")
        for _ in range(n_keys):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        if self.metadata.get("split.count", 1) > 1:
            raise ValueError(f"{self.path}: one shard of several; the reference reads whole models only")

        described = []
        for _ in range(n_tensors):
            name = self._string()
            # The file lists the innermost dimension first; turned round here, once.
            shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))[::-1]
            described.append((name, shape, self._scalar("I"), self._scalar("Q")))
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        data_start = -(-self._at // alignment) * alignment
        for name, shape, type_id, offset in described:
            self.tensors[name] = TensorInfo(name, shape, type_id, data_start + offset)

    def _take(self, count):
        piece = self._bytes[self._at : self._at + count]
        if len(piece) != count:
            raise ValueError(f"{self.path}: the header ends at byte {len(self._bytes)}, in the middle of a value")
        self._at += count
        return piece

    def _scalar(self, code):
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _string(self):
        return self._take(self._scalar("Q")).decode("utf-8", errors="surrogateescape")

    def _value(self, type_id):
        if type_id in SCALARS:
            return self._scalar(SCALARS[type_id])
        if type_id == STRING:
            return self._string()
        if type_id == ARRAY:
            item_type, count = self._scalar("I"), self._scalar("Q")
            return [self._value(item_type) for _ in range(count)]
        raise ValueError(f"{self.path}: metadata value of unknown type {type_id}")
