"""Which model this is, without reading its weights: a digest of its config and vocabulary, and a count of its parameters."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from math import prod
from pathlib import Path

from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.dummy import tensors
from tokenrouter.models.errors import ModelError
from tokenrouter.models.gguf import read_gguf
from tokenrouter.models.locate import Located
from tokenrouter.models.vocabulary import Vocabulary, read_vocabulary


def fingerprint(
    located: Located, config: ModelConfig | None = None, vocabulary: Vocabulary | None = None
) -> str:
    """Return a SHA-256 over canonical config and vocabulary digest: equal on every machine, whatever the path.

    What is not given, from just before, is read.
    """
    config = read_config(located) if config is None else config
    vocabulary = read_vocabulary(located) if vocabulary is None else vocabulary
    written = json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(written.encode())
    digest.update(vocabulary.digest.encode())
    if (
        located.kind == "dummy"
    ):  # other weights than those of a checkpoint, and known before they are read
        digest.update(b"dummy %d" % located.seed)
    return digest.hexdigest()


def count_parameters(located: Located) -> int:
    """Return the number of parameters, an embedding that is also the head counted once."""
    match located.kind:
        case "gguf":
            return sum(prod(info.shape) for info in read_gguf(located.path).tensors.values())
        case "directory":
            return _stored(located.path)
        case "dummy":
            return sum(prod(shape) for shape in tensors(read_config(located)).values())
        case "student":
            assert located.teacher is not None
            embedding = read_gguf(located.teacher).tensors["token_embd.weight"]
            return _stored(located.path) + prod(embedding.shape)


def _stored(directory: Path) -> int:
    """Return the parameters in a directory's safetensors; scales of packed ones are none."""
    return sum(
        prod(tensor["shape"])
        for file in directory.glob("*.safetensors")
        for name, tensor in _header(file).items()
        if name != "__metadata__" and not name.endswith("_scale")
    )


def _header(file: Path) -> dict[str, dict[str, list[int]]]:
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > file.stat().st_size:
                raise ValueError(size)
            found = json.loads(opened.read(size))
    except OSError as error:
        raise ModelError(f"cannot read `{file}`: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"`{file}` is damaged or cut short") from error
    if not isinstance(found, dict):
        raise ModelError(f"`{file}` is damaged or cut short")
    return found
