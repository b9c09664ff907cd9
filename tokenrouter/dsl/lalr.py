"""The parser: one loop over the LALR tables, and what it does when a token does not fit.

It knows the grammar only by its tables; what a reduction builds is the caller's. After a mistake it first tries to go on
as if one missing sign stood there; else it drops the statement at hand: the stack is cut back to the nearest list of
statements (declarations, members, rules, properties, cases), and tokens are passed over up to one that such a list
can go on with. So a mistake costs its own statement and no other.

Reports, in the words of `tokenrouter.dsl.expected`: TR0201 ... TR0211.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import expected
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.nearest import nearest
from tokenrouter.dsl.table import Table, list_states, open_states, table, through

# (name of the production, children, first token, last token) -> node; an empty node has last < first.
Build = Callable[[str, list[object], int, int], object]

# Words that begin a statement of some list; passing over tokens stops at one that the list at hand can take.
STARTERS = frozenset([
    "IMPORT", "MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY", "TEST", "START", "AT",
    "GUARANTEE", "ENFORCE", "OBJECTIVE", "FALLBACK", "TEMPLATE", "WHEN", "OTHERWISE",
])  # fmt: skip
TOP = frozenset(["IMPORT", "MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY", "TEST", "$END"])
_ACTIONS = frozenset(["COMMIT", "RETRY", "BORROW", "STOP"])
INSERTABLE = (
    "ARROW", "COLON", "ASSIGN", "RPAR", "RSQB", "RBRACE", "LBRACE", "COMMA", "THEN", "FOR",
    "GIVEN", "MOST",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree, what is wrong with the text, and the ranges of tokens that no node stands for."""

    tree: object
    problems: list[Diagnostic]
    dropped: list[tuple[int, int]] = field(default_factory=list)  # first and last token


class Parser:
    """One parse: parallel stacks of states, values and token ranges."""

    def __init__(self, tokens: Tokens, build: Build) -> None:
        self.tokens = tokens
        self.build = build
        self.table: Table = table()
        self.states = [0]
        self.values: list[object] = [None]
        self.firsts = [0]
        self.lasts = [-1]
        self.problems: list[Diagnostic] = []
        self.dropped = [(string, string) for string in tokens.unclosed]
        self.passed = (
            False  # the last mistake was a token that was passed over, and what follows is sound
        )
        self.inserted: set[int] = set()  # before these tokens a `{` was told to be missing

    def run(self) -> Parsed:
        """Return the tree; there always is one."""
        at, real, kinds = 0, self.tokens.real, self.tokens.kinds
        rows, states, productions = self.table.states, self.states, self.table.productions
        last_error = -1
        while True:
            token = real[at]
            action = rows[states[-1]].get(kinds[token])
            if action is None:
                self.passed = False
                at = self._recover(at, quiet=at == last_error)
                last_error = -1 if self.passed else at
            elif action > 0:
                states.append(action)
                self.values.append(token)
                self.firsts.append(token)
                self.lasts.append(token)
                at += 1
            elif action == 0:
                return Parsed(self.values[1], self.problems, self.dropped)
            elif productions[-1 - action].renames:
                states[-1] = through(states[-2], states[-1], kinds[token])
            else:
                self._reduce(-1 - action, token)

    def _settle(self, kind: str, token: int) -> int | None:
        """Reduce as long as the tables say so; return the state to shift into, 0 to accept, None for a mistake."""
        rows, states = self.table.states, self.states
        while True:
            action = rows[states[-1]].get(kind)
            if action is None or action >= 0:
                return action
            if self.table.productions[-1 - action].renames:
                states[-1] = through(states[-2], states[-1], kind)
            else:
                self._reduce(-1 - action, token)

    def _push(self, state: int, value: object, first: int, last: int) -> None:
        self.states.append(state)
        self.values.append(value)
        self.firsts.append(first)
        self.lasts.append(last)

    def _reduce(self, number: int, token: int) -> None:
        name, origin, size, kept, single, _ = self.table.productions[number]
        base = len(self.states) - size
        values = self.values[base:]
        # an empty node stands behind what came before, not before what comes
        first, last = self.firsts[base] if size else token, self.lasts[-1]
        children: list[object] = []
        for i in kept:
            if i >= 0:
                children.append(values[i])
            elif i == -1:
                children.append(None)
            else:
                inner = values[-2 - i]
                assert isinstance(inner, list)
                if children:
                    children.extend(inner)
                else:
                    children = inner  # the list grows in place: it is on no other stack
        value: object
        if name[0] == "_":
            value = children
        elif single and len(children) == 1:
            value = children[0]
        else:
            value = self.build(name, children, first, last)
        state = self.table.states[self.states[base - 1]][origin]
        self.states[base:] = (state,)
        self.values[base:] = (value,)
        self.firsts[base:] = (first,)
        self.lasts[base:] = (last,)

    # Mistakes

    def accepts(self, kinds: list[str], states: list[int] | None = None) -> bool:
        """Return whether the tokens `kinds` could all be shifted from here, one after the other."""
        stack = list(self.states if states is None else states)
        for kind in kinds:
            while True:
                action = self.table.states[stack[-1]].get(kind)
                if action is None:
                    return False
                if action >= 0:
                    stack.append(action)
                    break
                production = self.table.productions[-1 - action]
                if production.size:
                    del stack[-production.size :]
                stack.append(self.table.states[stack[-1]][production.origin])
        return True

    def _recover(self, at: int, *, quiet: bool) -> int:
        """Report the token at `at`, make the stack fit what comes, and return where to go on."""
        real, kinds = self.tokens.real, self.tokens.kinds
        token = real[at]
        self._finish_complete(token)
        if not quiet and self._after_unclosed(at):
            return self._end_line(at)
        if kinds[token] in TOP and self._close(at):
            return at
        if quiet or self._after_stray(token):
            return self._skip(at)
        if self._mend(at):
            return at if kinds[token] != "STRAY" else at + 1
        opened = bool(self._open(0))
        self.problems.append(expected.unexpected(self, token, opened))
        if kinds[token] == "RBRACE" and not opened and self.states[-1] in list_states():
            self.passed = True
            self.dropped.append((token, token))
            return at + 1
        return self._skip(at)

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
            return self._skip(at, -closed)
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

    def _mend(self, at: int) -> bool:
        """Report and mend a mistake after which nothing need be dropped; return whether it was one."""
        real, kinds = self.tokens.real, self.tokens.kinds
        token, kind = real[at], kinds[real[at]]
        coming = kinds[real[at + 1]] if at + 1 < len(real) else "$END"
        text = self.tokens.text(token)
        number = at > 0 and kind == "NAME" and kinds[real[at - 1]] == "NUMBER"
        unit = text in expected.KINDS or nearest(text, expected.UNITS) is not None
        unit = (unit and coming not in ("NAME", "STRING")) or self.accepts(["NATS"])
        if number and (unit or real[at - 1] == token - 1):
            self.problems.append(expected.unit(self.tokens, token))
            kinds[token] = "STRAY"
            return True
        if (
            text in self.table.words
            and text not in expected.PLANNED
            and self.accepts(["NAME", coming])
        ):
            source, starts = self.tokens.source, self.tokens.starts
            place = source.span(starts[token], self.tokens.end(token))
            self.problems.append(expected.word_as_name(text, place))
            kinds[token] = "NAME"
            return True
        if kind in expected.ARROWS and coming in _ACTIONS and self.accepts(["ARROW", coming]):
            closer = self._closer(at) if kind == "LBRACE" else None
            self.problems.append(expected.arrow(self.tokens, token, closer))
            kinds[token] = "ARROW"
            if closer is not None:
                real.remove(closer)
            return True
        if text == "==" and self.accepts(["ASSIGN", coming]):
            self.problems.append(expected.assign(self.tokens, token))
            kinds[token] = "ASSIGN"
            return True
        missing = [sign for sign in INSERTABLE if self.accepts([sign, kind])]
        if "ASSIGN" in missing and self.accepts(["COMPARE"]):
            missing.remove("ASSIGN")  # in a condition it compares nothing
        if len(missing) > 1:
            missing = [sign for sign in missing if self.accepts([sign, kind, coming])]
        if len(missing) == 1 and missing[0] == "RBRACE":
            brace = self._open(0)[-1]
            if brace not in self.inserted:
                self.problems.append(expected.unclosed(self.tokens, [brace], token))
            self._insert("RBRACE", token)
            return True
        if len(missing) == 1 and at:
            self.problems.append(expected.missing(self.tokens, real[at - 1], token, missing[0]))
            self._insert(missing[0], token)
            if missing[0] == "LBRACE":
                self.inserted.add(token)
            return True
        return kind == "NAME" and self._respell(token, coming)

    def _respell(self, token: int, coming: str) -> bool:
        """Take a name for the word of the language that it is by all likelihood; return whether there is one."""
        text = self.tokens.text(token)
        fitting = [
            word
            for word, terminal in self.table.words.items()
            if word not in expected.PLANNED and self.accepts([terminal, coming])
        ]
        other = expected.SYNONYMS.get(text)
        near = other if other in fitting else nearest(text, fitting)
        if near is None:
            return False
        self.problems.append(expected.unexpected(self, token, bool(self._open(0))))
        self.tokens.kinds[token] = self.table.words[near]
        return True

    def _closer(self, at: int) -> int | None:
        """Return the `}` that goes with the `{` at a place; None where there is none."""
        depth, kinds = 0, self.tokens.kinds
        for token in self.tokens.real[at:]:
            depth += (kinds[token] == "LBRACE") - (kinds[token] == "RBRACE")
            if depth == 0:
                return token
        return None

    def _insert(self, kind: str, token: int) -> None:
        action = self._settle(kind, token)
        assert action, kind
        self._push(action, token, token, token - 1)

    def _open(self, cut: int) -> list[int]:
        """Return the `{` that are not closed yet, from a place of the stack on."""
        pairs = zip(self.states[cut:], self.firsts[cut:], strict=True)
        return [first for state, first in pairs if state in open_states()]

    def _finish_complete(self, token: int) -> None:
        """Reduce what is complete whatever follows, so that a closed block is not taken for an open one."""
        while True:
            actions = {
                a for kind, a in self.table.states[self.states[-1]].items() if not kind.islower()
            }
            if len(actions) != 1:
                return
            (action,) = actions
            if action >= 0 or not self.table.productions[-1 - action].size:
                return
            self._reduce(-1 - action, token)

    def _close(self, at: int) -> bool:
        """Close every open block before a word that only stands outside all of them; return whether that fits."""
        braces, token = self._open(0), self.tokens.real[at]
        kind = self.tokens.kinds[token]
        if not braces or not self.accepts(["RBRACE"] * len(braces) + [kind]):
            return False
        told = [brace for brace in braces if brace not in self.inserted]
        if told:
            self.problems.append(expected.unclosed(self.tokens, told, token))
        last = self.tokens.real[at - 1]
        self.dropped.append((last + 1, last))  # what the blocks lack may stand in what is missing
        for _ in braces:
            self._insert("RBRACE", token)
        return True

    def _cut(self) -> int:
        """Return the place of the nearest list of statements on the stack."""
        cut = len(self.states) - 1
        while cut and self.states[cut] not in list_states():
            cut -= 1
        return cut

    def _drop(self, cut: int, start: int, token: int) -> None:
        """Cut the stack back to a list: what is not in it is dropped, with what stands from `start` to a token."""
        first = self.firsts[cut + 1] if cut + 1 < len(self.states) else start
        for stack in (self.states, self.values, self.firsts, self.lasts):
            del stack[cut + 1 :]
        self.dropped.append((first, token - 1))

    def _skip(self, at: int, depth: int | None = None) -> int:
        """Cut the stack back to a list of statements and pass over tokens up to one that it can go on with."""
        real, kinds = self.tokens.real, self.tokens.kinds
        cut, start = self._cut(), at
        depth = len(self._open(cut + 1)) if depth is None else depth
        while kinds[real[at]] != "$END":
            kind = kinds[real[at]]
            if kind in TOP and self._fits_outside(cut, kind):
                break
            starts = at > start or kind in STARTERS or kind == "RBRACE"
            most = kind == "AT" and kinds[real[at + 1]] == "MOST"
            if depth == 0 and starts and not most and self.accepts([kind], self.states[: cut + 1]):
                break
            ended = depth == 1 and kind == "RBRACE" and not self._open(0)
            depth = max(0, depth + (kind == "LBRACE") - (kind == "RBRACE"))
            at += 1
            if ended and kinds[real[at]] == "NAME" == kinds[real[at + 1]]:  # a word misspelt
                self.passed = True
                break
        self._drop(cut, real[start], real[at])
        return at

    def _fits_outside(self, cut: int, kind: str) -> bool:
        """Return whether a word of the top level fits once every block below the cut is closed."""
        states = self.states[: cut + 1]
        opened = sum(state in open_states() for state in states)
        return self.accepts(["RBRACE"] * opened + [kind], states)
