"""Which bytes each token id stands for: what two models must agree on before one may go on where the other stopped.

Vocabularies are compared as id -> bytes, never by a count that padding changes and never by the token's spelling in a file:
byte-level vocabularies spell bytes as printable characters, others spell a space as `▁` and rare bytes as `<0x0A>`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tokenrouter.models import dummy
from tokenrouter.models.errors import ModelError
from tokenrouter.models.files import Identity, identity, read_json
from tokenrouter.models.gguf import GgufHead, read_gguf
from tokenrouter.models.locate import Located

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF token types
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The bytes of every id that the tokenizer knows; the model's head may have more rows, which are padding."""

    tokens: tuple[bytes, ...]  # by id; an id that stands for nothing has none
    special_ids: frozenset[int]  # control tokens, which are no text

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.tokens)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the table and the special ids."""
        parts: list[bytes] = []
        for id_, token in enumerate(self.tokens):
            mark = b"\x01" if id_ in self.special_ids else b"\x00"
            parts += (len(token).to_bytes(4, "little"), mark, token)
        return hashlib.sha256(b"".join(parts)).hexdigest()


def read_vocabulary(located: Located) -> Vocabulary:
    """Return a model's vocabulary; raises ModelError where it has none that can be read."""
    gguf = gguf_of(located)
    if gguf is not None:
        return _from_gguf(gguf, identity(gguf))
    if located.kind == "dummy" and dummy.is_plain(located.path):
        return _of_bytes(int(dummy.raw_config(located.path)["vocab_size"]))
    path = tokenizer_json(located)
    return _from_json(path, identity(path))


def gguf_of(located: Located) -> Path | None:
    """Return the GGUF file that holds a model's tokenizer; None where it is in a directory."""
    return {"gguf": located.path, "student": located.teacher}.get(located.kind)


def tokenizer_json(located: Located) -> Path:
    """Return a directory's tokenizer.json."""
    path = located.path / "tokenizer.json"
    if not path.is_file():
        raise ModelError(
            f"`{located.path}` has no tokenizer.json; save the model's fast tokenizer there"
        )
    return path


@lru_cache(maxsize=8)
def _from_json(path: Path, identity: Identity) -> Vocabulary:
    raw = read_json(path)
    try:
        vocab = raw["model"]["vocab"]
        ids: dict[str, int] = (
            vocab
            if isinstance(vocab, dict)
            else {str(piece[0]): id_ for id_, piece in reversed(list(enumerate(vocab)))}
        )
        added = {int(token["id"]): token for token in raw.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"`{path}` holds no vocabulary") from error
    spelled = _byte_level if is_byte_level(raw) else _spaced
    table = {id_: spelled(text) for text, id_ in ids.items()}
    table |= {id_: token["content"].encode() for id_, token in added.items()}
    if not table:
        raise ModelError(f"`{path}` holds an empty vocabulary")
    return Vocabulary(
        tuple(table.get(id_, b"") for id_ in range(max(table) + 1)),
        frozenset(id_ for id_, token in added.items() if token.get("special")),
    )


@lru_cache(maxsize=4)
def _of_bytes(rows: int) -> Vocabulary:
    return Vocabulary(dummy.tokens(rows), frozenset((dummy.END,)))


def is_byte_level(raw: dict[str, Any]) -> bool:
    """Return whether a tokenizer.json spells bytes as printable characters."""

    def holds(part: Any) -> bool:
        if isinstance(part, dict):
            return part.get("type") == "ByteLevel" or any(holds(v) for v in part.values())
        return isinstance(part, list) and any(holds(v) for v in part)

    return holds(raw.get("decoder")) or holds(raw.get("pre_tokenizer"))


@lru_cache(maxsize=4)
def _from_gguf(path: Path, identity: Identity) -> Vocabulary:
    head = read_gguf(path)
    tokens, types = gguf_tokens(head)
    byte_level = head.metadata.get("tokenizer.ggml.model") == "gpt2"
    table = []
    for text, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            table.append(text.encode())
        else:
            table.append(_byte_level(text) if byte_level else _spaced(text))
    special = frozenset(id_ for id_, kind in enumerate(types) if kind in (CONTROL, UNKNOWN))
    return Vocabulary(tuple(table), special)


def gguf_tokens(head: GgufHead) -> tuple[list[str], list[int]]:
    """Return the tokens and types of a GGUF file's vocabulary, without the unused ids at its end."""
    tokens = head.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ModelError(f"`{head.path}` holds no tokenizer")
    types = head.metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    size = len(tokens)
    while size and types[size - 1] == UNUSED:
        size -= 1
    return tokens[:size], types[:size]


@lru_cache(maxsize=1)
def printable_bytes() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Printable bytes stand for themselves; the others, in order, are the characters from U+0100 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): byte for byte in plain}
    return table | {chr(0x100 + n): byte for n, byte in enumerate(rest)}


def _byte_level(text: str) -> bytes:
    table = printable_bytes()
    try:
        return bytes(map(table.__getitem__, text))
    except KeyError:
        return text.encode()


def _spaced(text: str) -> bytes:
    byte = _BYTE.fullmatch(text)
    if byte:
        return bytes([int(byte[1], 16)])
    return text.replace("▁", " ").encode()
