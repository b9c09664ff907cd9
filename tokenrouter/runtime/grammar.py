"""Grammars that an output must follow: which ids may come next, by llguidance, for the vocabulary that all models share.

A grammar travels as one text (`Sampling.grammar`), made once by the front end: `of_regex`, `of_lark`, `of_json_schema`. Every
subserver reads the tokens that it has not read yet, whoever wrote them, so nothing but tokens has to travel with a hand-off.

The end of sequence may come exactly where the grammar may end. llguidance bounds its own work, compiling and each
step; a grammar that needs more is an error, and until then its subserver waits: seconds were seen.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenrouter.errors import TokenRouterError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from tokenrouter.models.tokenizer import TextTokenizer

MAX_KEPT = 8  # compiled grammars of one subserver; the largest take some 80 MB
WHITE_SPACE = r"[ \n\t]{0,16}"  # between the parts of a JSON text
ANY_OBJECT = '{"type": "object"}'


class GrammarError(TokenRouterError):
    """A grammar that cannot be followed; the message is one line and for the client."""


def of_regex(pattern: str) -> str:
    """Return the grammar of texts that a regular expression matches as a whole."""
    from llguidance import LLMatcher  # noqa: PLC0415 - needed only where a grammar is asked for

    return LLMatcher.grammar_from_regex(pattern)


def of_lark(text: str) -> str:
    """Return a grammar that is written as llguidance's dialect of Lark."""
    from llguidance import LLMatcher  # noqa: PLC0415

    return LLMatcher.grammar_from_lark(text)


def of_json_schema(schema: str) -> str:
    """Return the grammar of JSON texts that a schema allows; raises GrammarError where the schema is no JSON object."""
    from llguidance import LLMatcher  # noqa: PLC0415

    try:
        overrides: Any = {"whitespace_pattern": WHITE_SPACE}
        return LLMatcher.grammar_from_json_schema(schema, overrides=overrides)
    except ValueError as error:
        raise GrammarError(_line(str(error))) from error


class Grammars:
    """The grammars over one vocabulary; its tokenizer is read when the first one comes."""

    def __init__(
        self, tokenizer: Callable[[], TextTokenizer], size: int, eos_ids: Collection[int]
    ) -> None:
        self._load = tokenizer
        self._size = size
        self._eos = sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()

    def check(self, grammar: str) -> None:
        """Compile a grammar, which may take a while; raises GrammarError. Needs no other thread to stay away."""
        Matcher(self._compiled(grammar), self._size, self._eos).allowed()

    def matcher(self, grammar: str) -> Matcher:
        """Return a matcher before its first token."""
        if grammar not in self._kept:
            self._kept[grammar] = self._compiled(grammar)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(grammar)
        return Matcher(self._kept[grammar].deep_copy(), self._size, self._eos)

    def drop(self, grammar: str) -> None:
        """Forget a grammar that proved too costly: nobody can use it, and what it has built is large."""
        self._kept.pop(grammar, None)

    def _compiled(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415

        if not self._eos:
            raise GrammarError("the models have no end of sequence, so that no grammar could end")
        limits = LLParserLimits(max_grammar_size=100_000, max_lexer_states=50_000)
        made = LLMatcher(self._ids(), grammar, log_level=0, limits=limits)
        if made.is_error():
            raise GrammarError(_line(made.get_error()))
        return made

    def _ids(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

        if self._tokenizer is None:
            spelled = TokenizerWrapper(_Spelled(self._load(), self._size, self._eos[0]))
            self._tokenizer = LLTokenizer(spelled, n_vocab=self._size, eos_token=self._eos)
        return self._tokenizer


class _Spelled:
    """A tokenizer as llguidance asks for one."""

    bos_token_id = None

    def __init__(self, tokenizer: TextTokenizer, size: int, eos: int) -> None:
        self._encode = tokenizer.encode
        self.eos_token_id = eos
        self.tokens = [tokenizer.id_to_bytes(id_) for id_ in range(size)]
        self.special_token_ids = sorted(tokenizer.special_ids)

    def __call__(self, text: bytes | str) -> list[int]:
        """Return the ids of a text."""
        return self._encode(text.decode() if isinstance(text, bytes) else text)


class Matcher:
    """One output on its way through a grammar."""

    def __init__(self, matcher: LLMatcher, size: int, eos_ids: list[int]) -> None:
        self._matcher = matcher
        self._size = size
        self._eos = eos_ids

    def read(self, tokens: list[int]) -> None:
        """Take tokens that were committed; raises GrammarError where they do not follow the grammar, or it costs too much."""
        if tokens and not self._matcher.consume_tokens(tokens):
            raise GrammarError(_line(self._matcher.get_error()))

    def allowed(self) -> np.ndarray:
        """Return by id whether it may come next: [V] bool, at least one; raises GrammarError where it costs too much."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise GrammarError(_line(self._matcher.get_error()))
        allowed = np.unpackbits(packed, bitorder="little")[: self._size].astype(bool)
        allowed[self._eos] = self._matcher.is_accepting() or self._matcher.is_stopped()
        if not allowed.any():
            raise GrammarError("the grammar has come to where no token can follow")
        return allowed


def _line(message: str) -> str:
    """Return a message of llguidance as one line of bounded length."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^|")]
    return " ".join(lines)[:300]


def json_text(value: object) -> str:
    """Return a schema as text, keys in the order in which they came: it is the order of the members written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise GrammarError("the schema is nested too deeply") from None
