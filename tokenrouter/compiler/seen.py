"""What was found in the states of a policy that is typed, kept as long as a state stays, and what it reads of the declarations.

Passes that look at one state at a time ask a `Look` for what they find in it; while a policy is typed that is `Seen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenrouter.compiler.expr import Expr, ParamOf, walk
from tokenrouter.compiler.ir import Automaton, Borrow, ParamDecl, State
from tokenrouter.compiler.lower import lower, lower_state
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir

Find = Callable[[Automaton, State], list[Diagnostic]]
Look = Callable[[str, Automaton, State, Find], list[Diagnostic]]


def anew(what: str, auto: Automaton, state: State, find: Find) -> list[Diagnostic]:
    """Return what is found in a state, for the first time."""
    return find(auto, state)


class _Reads(NamedTuple):
    """All that a look at a state asks of its policy."""

    params: tuple[ParamDecl, ...]
    models: tuple[str, ...]
    vocabulary: int


class _Ground(NamedTuple):
    """The declarations of the policy that was looked at last."""

    auto: Automaton
    models: tuple[str, ...]
    params: dict[str, ParamDecl]


class _Kept(NamedTuple):
    """What was found in a state, and of which state."""

    state: State
    names: frozenset[str]  # of params
    reads: _Reads
    found: list[Diagnostic]


@dataclass(eq=False, slots=True)
class Seen:
    """The states of one policy as they were last. Two threads may ask at a time."""

    lowered: dict[str, tuple[hir.Block, State]] = field(default_factory=dict)  # by model
    kept: dict[tuple[str, str], _Kept] = field(default_factory=dict)  # by pass and model
    ground: _Ground | None = None

    def lower(self, policy: hir.Policy) -> Automaton:
        """Return the IR of a policy, with the very states of before where their blocks are."""
        before, now = self.lowered, {}
        for block in policy.blocks:
            known = before.get(block.model)
            if known is None or known[0] is not block:
                known = block, lower_state(block)
            now[block.model] = known
        self.lowered = now
        for place in list(self.kept):
            if place[0] != "start" and place[1] not in now:
                self.kept.pop(place, None)
        return lower(policy, lambda block: now[block.model][1])

    def ahead(self, policy: hir.Policy) -> int:
        """Return how many rules of a policy have to be looked at."""
        auto = self.lower(policy)
        new = (s for s in auto.states if self.known("coverage", auto, s) is None)
        return sum(len(state.rules) for state in new)

    def look(
        self, stop: Callable[[], None], what: str, auto: Automaton, state: State, find: Find
    ) -> list[Diagnostic]:
        """Return what is found in a state, as it was found before where all that it depends on is the same.

        `stop` raises where nobody waits for it any more.
        """
        known = self.known(what, auto, state)
        if known is None:
            stop()
            names = frozenset(_params(state))
            known = _Kept(state, names, self._reads(auto, names), find(auto, state))
            self.kept[what, state.model] = known
        return known.found

    def known(self, what: str, auto: Automaton, state: State) -> _Kept | None:
        """Return what was found in a state; None where that has to be looked for."""
        known = self.kept.get((what, state.model))
        if known is None or (known.state is not state and known.state != state):
            return None
        return known if known.reads == self._reads(auto, known.names) else None

    def _reads(self, auto: Automaton, names: frozenset[str]) -> _Reads:
        ground = self.ground
        if ground is None or ground.auto is not auto:
            models = tuple(decl.name for decl in auto.models)
            if ground is not None and ground.models == models:
                models = ground.models  # the very same are soon compared
            ground = self.ground = _Ground(auto, models, {d.name: d for d in auto.params})
        params = tuple(ground.params[name] for name in sorted(names))
        return _Reads(params, ground.models, auto.vocabulary)


def _params(state: State) -> Iterator[str]:
    """Yield the params that guards and the lengths of stays read."""
    for rule in state.rules:
        parts: list[Expr | None] = [rule.when]
        if isinstance(rule.go, Borrow):
            parts += [rule.go.most, rule.go.until]
        for part in parts:
            for leaf in () if part is None else walk(part):
                if isinstance(leaf, ParamOf):
                    yield leaf.name
