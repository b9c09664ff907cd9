"""Text to token ids and back, and conversations to prompts, for a model on this machine.

From tokenizer.json with the `tokenizers` library, or rebuilt from a GGUF file. It knows nothing of weights or torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokenrouter.models import dummy
from tokenrouter.models.chat import ChatTemplate, read_template
from tokenrouter.models.errors import ModelError
from tokenrouter.models.gguf import GgufHead, read_gguf
from tokenrouter.models.locate import Located, locate
from tokenrouter.models.rebuild import of_bytes, rebuild
from tokenrouter.models.vocabulary import (
    Vocabulary,
    gguf_of,
    read_vocabulary,
    tokenizer_json,
)
from tokenrouter.plan.structs import Plan

LONG_TEXT = 4096  # characters from which on encoding lets other threads run, which costs short texts more than it gives


class TextTokenizer:
    """A model's tokenizer. Encoding may run in several threads at once, and beside them where the text is long."""

    def __init__(
        self,
        tokenizer: Any,  # tokenizers.Tokenizer, which has no types
        vocabulary: Vocabulary,
        template: ChatTemplate | None,
        bos_id: int | None = None,  # where the tokenizer itself does not put it in front
    ) -> None:
        self._tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.template = template
        self._bos_id = bos_id

    @classmethod
    def of(cls, plan: Plan, base: Path) -> TextTokenizer:
        """Return the tokenizer that a plan's requests speak; raises ModelError."""
        return cls.load(locate(plan.models[plan.tokenizer.template_from].use, base))

    @classmethod
    def load(cls, located: Located) -> TextTokenizer:
        """Return a model's tokenizer; raises ModelError."""
        vocabulary = read_vocabulary(located)
        template = read_template(located)
        gguf = gguf_of(located)
        if gguf is not None:
            head = read_gguf(gguf)
            return cls(rebuild(head), vocabulary, template, _gguf_bos(head))
        if located.kind == "dummy" and dummy.is_plain(located.path):
            return cls(of_bytes(vocabulary.tokens), vocabulary, template)
        path = tokenizer_json(located)
        try:
            made = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from error
        made.no_truncation()
        made.no_padding()
        return cls(made, vocabulary, template)

    @property
    def size(self) -> int:
        """Number of ids, padding rows of a model's head not included."""
        return self.vocabulary.size

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self.vocabulary.tokens))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of control tokens, which are not shown."""
        return self.vocabulary.special_ids

    def encode(self, text: str, *, with_special: bool = True) -> list[int]:
        """Return the ids of a text; with `with_special` among those that the tokenizer puts around it, if any."""
        ids = self._ids(text, with_special=with_special)
        return ids if self._bos_id is None or not with_special else [self._bos_id, *ids]

    def _ids(self, text: str, *, with_special: bool) -> list[int]:
        if len(text) < LONG_TEXT:
            short: list[int] = self._tokenizer.encode(text, add_special_tokens=with_special).ids
            return short
        # Of the library's ways to encode this one alone lets go of the interpreter's lock.
        encode = self._tokenizer.encode_batch_fast
        [made] = encode([text], add_special_tokens=with_special)
        ids: list[int] = made.ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some ids, control tokens left out; U+FFFD stands for broken characters."""
        shown = (id_ for id_ in ids if id_ not in self.special_ids)
        return b"".join(self.id_to_bytes(id_) for id_ in shown).decode("utf-8", "replace")

    def id_to_bytes(self, id_: int) -> bytes:
        """Return what an id stands for; a character may be parted over several ids."""
        return self.vocabulary.tokens[id_]

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the prompt of a conversation, up to where the answer begins; raises ModelError."""
        return self.encode_rendered(self.render(messages))

    def render(self, messages: list[dict[str, str]], *, answers: bool = True) -> str:
        """Return a conversation as the text that the model reads, with `answers` up to where it answers; raises ModelError."""
        if self.template is None:
            raise ModelError("the model has no chat template; use plain completions")
        return self.template.render(messages, answers=answers)

    def encode_rendered(self, text: str) -> list[int]:
        """Return the ids of a rendered conversation; the template has written its own begin token."""
        return self._ids(text, with_special=False)


def _gguf_bos(head: GgufHead) -> int | None:
    """Return the id that stands before every text; files that do not say so go by their kind."""
    usual = head.metadata.get("tokenizer.ggml.model") == "llama"
    if not head.metadata.get("tokenizer.ggml.add_bos_token", usual):
        return None
    id_ = head.metadata.get("tokenizer.ggml.bos_token_id")
    return id_ if isinstance(id_, int) else None
