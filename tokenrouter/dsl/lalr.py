"""The parser's machine: one loop over the LALR tables.

It knows the grammar only by its tables; what a reduction builds is the caller's, and what happens where a token does not fit
is told in `tokenrouter.dsl.recover`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.table import Table, list_states, open_states, table, through

# (name of the production, children, first token, last token) -> node; an empty node has last < first.
Build = Callable[[str, list[object], int, int], object]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree, what is wrong with the text, and the ranges of tokens that no node stands for."""

    tree: object
    problems: list[Diagnostic]
    dropped: list[tuple[int, int]]  # first and last token
    renamed: set[str]  # words of the language that stand as names


class Machine(ABC):
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
        self.renamed: set[str] = set()  # words of the language that stand as names
        self.passed = False  # the last mistake was passed over, and what follows is sound

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
                at = self.recover(at, quiet=at == last_error)
                last_error = -1 if self.passed else at
            elif action > 0:
                states.append(action)
                self.values.append(token)
                self.firsts.append(token)
                self.lasts.append(token)
                at += 1
            elif action == 0:
                return Parsed(self.values[1], self.problems, self.dropped, self.renamed)
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

    @abstractmethod
    def recover(self, at: int, *, quiet: bool) -> int:
        """Report the token at `at`, unless `quiet`, make the stack fit what comes, and return where to go on."""

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
