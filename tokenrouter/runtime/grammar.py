"""Grammars that an output must follow: which ids may come next, by llguidance, for the vocabulary that all models share.

A grammar travels as one text (`Sampling.grammar`), made once by the front end: `of_regex`, `of_lark`, `of_json_schema`. Every
subserver reads the tokens that it has not read yet, whoever wrote them, so nothing but tokens has to travel with a hand-off.

The end of sequence may come exactly where the grammar may end. llguidance bounds its own work, compiling and each
step; a grammar that needs more is an error. Until then some tenths of a second pass, so `masks` has threads for it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenrouter.errors import TokenRouterError
from tokenrouter.runtime.grammar_faults import NO_TEXT, explained

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from tokenrouter.models.tokenizer import TextTokenizer

MAX_KEPT = 8  # compiled grammars of one subserver; the largest take some 80 MB
WHITE_SPACE = r"[ \n\t]{0,16}"  # between the parts of a JSON text
ANY_OBJECT = '{"type": "object"}'
NICENESS = 10  # of a thread that works for grammars


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
        raise GrammarError(explained(str(error))) from error


class Grammars:
    """The grammars over one vocabulary; its tokenizer is read when the first one comes. For any threads."""

    def __init__(
        self, tokenizer: Callable[[], TextTokenizer], size: int, eos_ids: Collection[int]
    ) -> None:
        self._load = tokenizer
        self._size = size
        self._eos = sorted(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._reading = threading.Lock()  # of the tokenizer
        self._lock = threading.Lock()  # of what is kept
        self._kept: OrderedDict[str, Future[LLMatcher]] = OrderedDict()

    def prepare(self) -> None:
        """Read the vocabulary now: it takes some tenths of a second, in which no other thread gets far."""
        if self._eos:
            self._ids()

    def check(self, grammar: str) -> None:
        """Compile a grammar, which may take a while; raises GrammarError."""
        Matcher(self._compiled(grammar), self._size, self._eos).allowed()

    def matcher(self, grammar: str) -> Matcher:
        """Return a matcher before its first token; one grammar is compiled once, whoever else asks meanwhile."""
        with self._lock:
            kept = self._kept.get(grammar)
            made: Future[LLMatcher] = kept or Future()
            self._kept[grammar] = made
            self._kept.move_to_end(grammar)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        if kept is None:
            try:
                made.set_result(self._compiled(grammar))
            except BaseException as error:  # noqa: BLE001 - whoever waits for it must hear of it
                self.drop(grammar)
                made.set_exception(error)
        return Matcher(made.result().deep_copy(), self._size, self._eos)

    def drop(self, grammar: str) -> None:
        """Forget a grammar that proved too costly: nobody can use it, and what it has built is large."""
        with self._lock:
            self._kept.pop(grammar, None)

    def _compiled(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415

        if not self._eos:
            raise GrammarError("the models have no end of sequence, so that no grammar could end")
        limits = LLParserLimits(max_grammar_size=100_000, max_lexer_states=50_000)
        made = LLMatcher(self._ids(), grammar, log_level=0, limits=limits)
        if made.is_error():
            raise GrammarError(explained(made.get_error()))
        return made

    def _ids(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

        with self._reading:
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
            raise GrammarError(explained(self._matcher.get_error()))

    def allowed(self) -> np.ndarray:
        """Return by id whether it may come next: [V] bool, at least one; raises GrammarError where it costs too much."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise GrammarError(explained(self._matcher.get_error()))
        allowed = np.unpackbits(packed, bitorder="little")[: self._size].astype(bool)
        allowed[self._eos] = self._matcher.is_accepting() or self._matcher.is_stopped()
        if not allowed.any():
            raise GrammarError(NO_TEXT)
        return allowed


def give_way() -> None:
    """Let the threads of models, and of the server, go before this one."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def json_text(value: object) -> str:
    """Return a schema as text, keys in the order in which they came: it is the order of the members written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise GrammarError("the schema is nested too deeply") from None
