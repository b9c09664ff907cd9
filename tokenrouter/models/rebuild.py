"""A GGUF file's tokenizer, rebuilt for the `tokenizers` library.

A GGUF file names its pre-tokeniser and does not describe it, so each name is described here; one that is not known is
refused, since a wrong one still encodes, into other tokens than the model was trained on. SmolLM2's, for one, parts digits
before anything else.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokenrouter.models.errors import ModelError
from tokenrouter.models.gguf import GgufHead
from tokenrouter.models.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    gguf_tokens,
    printable_bytes,
)

# One word, one to n digits, or one run of other signs at a time, each with at most one space before it.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS = {"qwen2": "", "llama-bpe": "{1,3}", "llama3": "{1,3}"}


def rebuild(head: GgufHead) -> Any:
    """Return the `tokenizers.Tokenizer` of a GGUF file; raises ModelError."""
    kind = head.metadata.get("tokenizer.ggml.model")
    tokens, types = gguf_tokens(head)
    if kind == "gpt2":
        tokenizer = _byte_level(head, tokens)
    elif kind == "llama":
        tokenizer = _sentence_piece(head, tokens)
    else:
        raise ModelError(f"`{head.path}` has a tokenizer of kind `{kind}`, which is not supported")
    special = [t for t, kind in zip(tokens, types, strict=True) if kind in (CONTROL, UNKNOWN)]
    user = [t for t, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in user])
    return tokenizer


def of_bytes(tokens: tuple[bytes, ...]) -> Any:
    """Return a tokenizer that gives each byte of a text its own id; other ids are only written."""
    spelling = {byte: character for character, byte in printable_bytes().items()}
    vocab = {"".join(spelling[byte] for byte in token): id_ for id_, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_level(head: GgufHead, tokens: list[str]) -> Any:
    pre = str(head.metadata.get("tokenizer.ggml.pre", "default"))
    merges = [
        tuple(merge.split(" ", 1)) for merge in head.metadata.get("tokenizer.ggml.merges") or []
    ]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    digits = _DIGITS.get(pre)
    # Llama 3's whole words win over what merges would make of them.
    model = models.BPE(vocab, merges, ignore_merges=digits == "{1,3}")
    tokenizer = Tokenizer(model)
    if digits is not None:
        split = pre_tokenizers.Split(Regex(_SPLIT % digits), "isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
    elif pre == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    elif pre in ("default", "gpt-2"):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        raise ModelError(
            f"`{head.path}` has the pre-tokeniser `{pre}`, which is not known; "
            "use the model's Hugging Face directory"
        )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(head: GgufHead, tokens: list[str]) -> Any:
    """Return a BPE whose merges are those that the pieces' scores imply: the likelier whole first."""
    vocab = {token: id_ for id_, token in reversed(list(enumerate(tokens)))}
    scores = head.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) < len(tokens):
        raise ModelError(f"`{head.path}` has a tokenizer without scores")
    found = []
    for token, id_ in vocab.items():
        for at in range(1, len(token)):
            left, right = vocab.get(token[:at]), vocab.get(token[at:])
            if left is not None and right is not None:
                found.append((-scores[id_], left, right, token[:at], token[at:]))
    merges = [(left, right) for *_, left, right in sorted(found)]
    unknown = head.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    model = models.BPE(vocab, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    steps: list[Any] = [normalizers.Replace(" ", "▁")]
    if head.metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer
