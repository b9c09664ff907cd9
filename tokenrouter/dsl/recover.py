"""What the parser does when a token does not fit.

It first tries to go on as if one `}` were less there, or as `tokenrouter.dsl.mend` does; else it drops the statement at hand: the stack is
cut back to the nearest list of statements (declarations, members, rules, properties, cases), and tokens are passed over up to
one that such a list can go on with. So a mistake costs its own statement and no other.

Reports, in the words of `tokenrouter.dsl.expected`: TR0201 ... TR0214.
"""

from __future__ import annotations

from tokenrouter.dsl import expected
from tokenrouter.dsl.lalr import Build
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.mend import STARTERS, TOP, Mender
from tokenrouter.dsl.table import list_states, open_states


class Parser(Mender):
    """One parse that always comes to its end."""

    def __init__(self, tokens: Tokens, build: Build) -> None:
        super().__init__(tokens, build)
        self.left_open: list[int] = []  # `{` that were passed over and that nothing closes

    def recover(self, at: int, *, quiet: bool) -> int:
        """Report the token at `at`, make the stack fit what comes, and return where to go on."""
        real, kinds = self.tokens.real, self.tokens.kinds
        token = real[at]
        if not quiet and self.without_to(at):
            return at + 1
        if not quiet and self._reopen(at):
            return at
        self._finish_complete(token)
        if not quiet and self._after_unclosed(at):
            return self._end_line(at)
        if self.declares(at) and self._close(at):
            return at
        if quiet or self._after_stray(token):
            return self.skip(at)
        mended = self.mend(at)
        if mended is not None:
            return mended
        opened = bool(self._open(0))
        self.problems.append(expected.unexpected(self, token, opened))
        if kinds[token] == "RBRACE" and not opened and self.states[-1] in list_states():
            self.passed = True
            self.dropped.append((token, token))
            return at + 1
        return self.skip(at)

    def _reopen(self, at: int) -> bool:
        """Take back the `}` before a word that only stands in the block which it closed; return whether that was it.

        Either that `}` is one too many, as one more tells that comes behind, or the statement stands outside its block.
        """
        tokens, real = self.tokens, self.tokens.real
        token, brace = real[at], real[at - 1]
        kind = tokens.kinds[token]
        if kind not in STARTERS - TOP or (self.firsts[-1], tokens.kinds[brace]) != (
            brace,
            "RBRACE",
        ):
            return False
        state = self._list_before(kind)
        if state is None:
            return False
        outer = self._open(0)
        if self.closes(at, len(outer)):
            self.problems.append(expected.too_many(tokens, brace, token))
        else:
            self.problems.append(expected.outside(tokens, token))
            self.excused.update(outer)
        for stack in (self.states, self.values, self.firsts, self.lasts):
            del stack[-1]
        self.states[-1] = state
        statements = self.values[-1]
        self.values[-1] = list(statements) if isinstance(statements, tuple) else []
        self.dropped.append((brace, brace))
        return True

    def _list_before(self, kind: str) -> int | None:
        """Return the state in which the list of a block that was just closed could go on with `kind`; None for none."""
        below = self.states[:-2]
        for symbol, state in self.table.states[below[-1]].items():
            if symbol.startswith("__") and self.accepts([kind], [*below, state]):
                return state
        return None

    def _after_unclosed(self, at: int) -> bool:
        """Return whether a string before a token is not closed, or is of a row of quotes of which one is missing."""
        real, tokens = self.tokens.real, self.tokens
        before = real[at - 1] if at else -1
        if before in tokens.unclosed or real[at] in tokens.unclosed:
            return True
        later = [string for string in tokens.unclosed if string > before]
        if before < 0 or tokens.kinds[before] != "STRING" or not later:
            return False
        return self._one_line(before, later[0])

    def _one_line(self, first: int, last: int) -> bool:
        text = self.tokens.source.text[self.tokens.starts[first] : self.tokens.starts[last]]
        return "\n" not in text and "\r" not in text

    def _end_line(self, at: int) -> int:
        """Drop the statement of a string that is not closed, and close the blocks that its line would have closed."""
        real, tokens = self.tokens.real, self.tokens
        string = next(s for s in tokens.unclosed if s >= real[max(at - 1, 0)])
        while real[at] <= string:
            at += 1
        text, token = tokens.text(string), real[at]
        cut = self._cut()
        closed = text.count("}") - text.count("{") - len(self._open(cut + 1))
        if closed < 0 and "{" in text:
            return self.skip(at, -closed)
        self._drop(cut, token, token)
        while self.accepts(["RBRACE"]):
            if closed <= 0 and (
                self.accepts([tokens.kinds[token]]) or not self._one_line(self._open(0)[-1], string)
            ):
                break
            self._insert("RBRACE", token)
            closed -= 1
        return at

    def _after_stray(self, token: int) -> bool:
        """Return whether what was passed over, and told, stands right before a token."""
        kinds, before = self.tokens.kinds, token - 1
        while before > 0 and kinds[before] == "SPACE":
            before -= 1
        return before >= 0 and kinds[before] == "STRAY"

    def _close(self, at: int) -> bool:
        """Close every open block before a word that only stands outside all of them; return whether that fits."""
        braces, token = self._open(0), self.tokens.real[at]
        kind = self.tokens.kinds[token]
        if not braces or not self.accepts(["RBRACE"] * len(braces) + [kind]):
            return False
        told = [brace for brace in (*braces, *self.left_open) if brace not in self.excused]
        self.left_open = []
        if told:
            self.problems.append(expected.unclosed(self.tokens, told, token))
        last = self.tokens.real[at - 1]
        self.dropped.append((last + 1, last))  # what the blocks lack may stand in what is missing
        for _ in braces:
            self._insert("RBRACE", token)
        return True

    def skip(self, at: int, depth: int | None = None) -> int:
        """Cut the stack back to a list of statements and pass over tokens up to one that it can go on with."""
        real, kinds = self.tokens.real, self.tokens.kinds
        cut, start = self._cut(), at
        opened = self._open(cut + 1) if depth is None else []
        depth = len(opened) if depth is None else depth
        while kinds[real[at]] != "$END":
            kind = kinds[real[at]]
            if self.declares(at) and self._fits_outside(cut, kind):
                break
            starts = at > start or kind in STARTERS or kind == "RBRACE"
            starts = starts and (kind not in TOP or self.declares(at))
            most = kind == "AT" and kinds[real[at + 1]] == "MOST"
            if depth == 0 and starts and not most and self.accepts([kind], self.states[: cut + 1]):
                break
            ended = depth == 1 and kind == "RBRACE" and not self._open(0)
            depth = max(0, depth + (kind == "LBRACE") - (kind == "RBRACE"))
            if kind == "LBRACE":
                opened.append(real[at])
            elif kind == "RBRACE" and opened:
                opened.pop()
            at += 1
            if ended and kinds[real[at]] == "NAME" == kinds[real[at + 1]]:  # a word misspelt
                self.passed = True
                break
        self._drop(cut, real[start], real[at])
        if self._open(0):
            self.left_open += opened  # they are told with the blocks around them
        elif opened:
            self.problems.append(expected.unclosed(self.tokens, opened, real[at]))
        return at

    def _fits_outside(self, cut: int, kind: str) -> bool:
        """Return whether a word of the top level fits once every block below the cut is closed."""
        states = self.states[: cut + 1]
        opened = sum(state in open_states() for state in states)
        return self.accepts(["RBRACE"] * opened + [kind], states)
