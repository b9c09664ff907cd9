"""The head of a GGUF file (version 2 or 3, little-endian): its metadata and where its tensors lie.

Tensors themselves are decoded elsewhere, with the `gguf` library; this reader is here because that library takes
seconds for the tens of thousands of strings of a vocabulary.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from tokenrouter.models.errors import ModelError
from tokenrouter.models.files import Identity, identity

_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")  # of a string


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies; `shape` is in torch's order, the contiguous dimension last."""

    name: str
    shape: tuple[int, ...]
    type: int  # of gguf.GGMLQuantizationType
    offset: int  # in the file


@dataclass(frozen=True, slots=True)
class GgufHead:
    """What stands before a GGUF file's weights."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """`llama`, `qwen2`, ..."""
        return str(self.metadata.get("general.architecture", ""))

    def own(self, key: str, default: Any = None) -> Any:
        """Return a value that is filed under the architecture's name."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


def read_gguf(path: Path) -> GgufHead:
    """Return the head of a file; raises ModelError where it is no GGUF file."""
    try:
        return _read(path, identity(path))
    except OSError as error:
        raise ModelError(f"cannot read `{path}`: {error.strerror or error}") from error
    except (struct.error, UnicodeDecodeError, IndexError, KeyError, ValueError) as error:
        raise ModelError(f"`{path}` is damaged or cut short: its GGUF head does not end") from error


@lru_cache(maxsize=4)
def _read(path: Path, identity: Identity) -> GgufHead:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        reader = _Reader(data)
        if data[:4] != b"GGUF":
            raise ModelError(f"`{path}` is no GGUF file")
        reader.at = 4
        version = reader.scalar("I")
        if version not in (2, 3):
            raise ModelError(f"`{path}` is GGUF version {version}; versions 2 and 3 can be read")
        n_tensors, n_keys = reader.scalar("Q"), reader.scalar("Q")
        metadata = {reader.string(): reader.value(reader.scalar("I")) for _ in range(n_keys)}
        tensors = [reader.tensor() for _ in range(n_tensors)]
        align = int(metadata.get("general.alignment", 32))
        begin = -(-reader.at // align) * align
    return GgufHead(
        path,
        metadata,
        {
            name: TensorInfo(name, shape, kind, begin + offset)
            for name, shape, kind, offset in tensors
        },
    )


class _Reader:
    """A cursor over the file."""

    def __init__(self, data: mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        found = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return found

    def string(self) -> str:
        size = self.scalar("Q")
        begin, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise IndexError(size)
        return self.data[begin : self.at].decode("utf-8")

    def strings(self, n: int) -> list[str]:
        """Read strings as `string` does, without a call for each: a vocabulary has a hundred thousand."""
        data, at, length, out = self.data, self.at, _LENGTH.unpack_from, []
        for _ in range(n):
            begin = at + 8
            at = begin + length(data, at)[0]
            if at > len(data):
                raise IndexError(at)
            out.append(data[begin:at].decode("utf-8"))
        self.at = at
        return out

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        inner, n = self.scalar("I"), self.scalar("Q")
        if inner == _STRING:
            return self.strings(n)
        if inner == _ARRAY:
            return [self.value(inner) for _ in range(n)]
        form = f"<{n}{_SCALARS[inner]}"
        found = list(struct.unpack_from(form, self.data, self.at))
        self.at += struct.calcsize(form)
        return found

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        shape = tuple(self.scalar("Q") for _ in range(self.scalar("I")))[::-1]
        return name, shape, self.scalar("I"), self.scalar("Q")
