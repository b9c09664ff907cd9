"""Which tokens end a text: what config, generation config and tokenizer say, together.

A GGUF file names one or two; those that end a turn or a text by their well-known spelling count as well, as they do for
other readers of these files.
"""

from __future__ import annotations

from typing import Any

from tokenrouter.models.dummy import END, is_plain
from tokenrouter.models.files import read_json
from tokenrouter.models.gguf import GgufHead, read_gguf
from tokenrouter.models.locate import Located

_CONTROL = 3  # GGUF token type
_NAMED = ("eos", "eot", "eom")
_SPELLED = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "</s>")
)


def stop_ids(located: Located) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a model, ascending."""
    if located.kind == "student":
        assert located.teacher is not None
        return gguf_stop_ids(read_gguf(located.teacher))
    if located.kind == "gguf":
        return gguf_stop_ids(read_gguf(located.path))
    if located.kind == "dummy" and is_plain(located.path):
        return (END,)
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        if (located.path / name).is_file():
            raw = read_json(located.path / name)
            found |= _ids(raw.get("eos_token_id"))
            if isinstance(raw.get("text_config"), dict):
                found |= _ids(raw["text_config"].get("eos_token_id"))
    return tuple(sorted(found | _of_tokenizer(located)))


def gguf_stop_ids(head: GgufHead) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a GGUF file, ascending."""
    found: set[int] = set()
    for name in _NAMED:
        found |= _ids(head.metadata.get(f"tokenizer.ggml.{name}_token_id"))
    tokens = head.metadata.get("tokenizer.ggml.tokens") or []
    types = head.metadata.get("tokenizer.ggml.token_type") or []
    control = (id_ for id_, kind in enumerate(types[: len(tokens)]) if kind == _CONTROL)
    return tuple(sorted(found.union(id_ for id_ in control if tokens[id_] in _SPELLED)))


def _of_tokenizer(located: Located) -> set[int]:
    """Return the id of the tokenizer's own end token, which must be one of its added tokens."""
    config, tokenizer = located.path / "tokenizer_config.json", located.path / "tokenizer.json"
    if not (config.is_file() and tokenizer.is_file()):
        return set()
    token = read_json(config).get("eos_token")
    content = token.get("content") if isinstance(token, dict) else token
    added = read_json(tokenizer).get("added_tokens") or []
    return {
        int(each["id"])
        for each in added
        if isinstance(each, dict) and each.get("content") == content
    }


def _ids(value: Any) -> set[int]:
    if value is None:
        return set()
    return {int(v) for v in value} if isinstance(value, list) else {int(value)}
