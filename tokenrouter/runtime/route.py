"""A model's route program over a batch: which nodes a step needs, which rule fires, what it decides.

The nodes are evaluated for all rows together (`evaluate`); the guards of all rules then give one index a row, and that
index is all that is read back from the device, with the numbers that the fired rules need. A guard whose nodes were not
evaluated, because the task graph has no `signals` on the way, does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tokenrouter.plan.nodes import closure
from tokenrouter.plan.structs import (
    Borrow,
    HeadRef,
    Mix,
    Plan,
    Rule,
    Signal,
    Stay,
    Stop,
    To,
    Window,
)
from tokenrouter.plan.text import node_text
from tokenrouter.runtime.evaluate import Evaluator, Head, Values
from tokenrouter.runtime.row import Key, Row
from tokenrouter.runtime.start import draw
from tokenrouter.runtime.state import Decision, tried, whole
from tokenrouter.runtime.vocabulary import Vocabulary
from tokenrouter.signals import SIGNALS


class Router:
    """The route program of one model."""

    def __init__(
        self, plan: Plan, model: int, vocabulary: Vocabulary, heads: dict[int, Head] | None = None
    ) -> None:
        self.plan = plan
        self.model = model
        program = plan.programs[model]
        self.rules = program.rules
        self.evaluator = Evaluator(plan, model, vocabulary, heads or {})
        # Co-LLM's added rows: they speak through their signal only, and are never sampled.
        self.deferred = sorted(
            {
                node.args[0]
                for node in program.nodes
                if isinstance(node, Signal) and node.name == "column"
            }
        )
        nodes = program.nodes
        self.own = sorted(closure(nodes, [at for rule in self.rules for at in _reads(rule)]))
        self._figures = [
            (node.name, tuple(node.args))
            for at in self.own
            if isinstance(node := nodes[at], Signal)
            and SIGNALS[node.name].needs in ("logits", "candidate")
        ]
        self.untils = program.untils
        self.watched = [sorted(closure(nodes, [at])) for at in program.untils]
        self.told = {
            at: node_text(plan, nodes, at)
            for at, node in enumerate(nodes)
            if isinstance(node, (Signal, Window, HeadRef))
        }

    def figures(self, rows: list[Row]) -> list[Key]:
        """Return the signals of the logits that the rules will read, where some row is not on a borrowed stay."""
        return self._figures if any(row.sequence.state.home is None for row in rows) else []

    def evaluate(self, rows: list[Row]) -> None:
        """Give each row the values of what its step needs: its rules, or the `until` of its borrowed stay."""
        groups: dict[int | None, list[Row]] = {}
        for row in rows:
            state = row.sequence.state
            key = -1 if state.home is None else state.until
            groups.setdefault(key, []).append(row)
        for key, group in groups.items():
            needed = self.own if key == -1 else [] if key is None else self.watched[key]
            if needed:
                self._evaluate(needed, group)

    def _evaluate(self, needed: list[int], rows: list[Row]) -> None:
        values = self.evaluator.evaluate(needed, rows)
        for at, row in enumerate(rows):
            row.values, row.values_at = values, at
        if any(row.sequence.traced for row in rows):
            self._tell(values, rows)

    def _tell(self, values: Values, rows: list[Row]) -> None:
        """Note the signals that were read, by readable text."""
        for node, text in self.told.items():
            if node in values and isinstance(values.columns[node], np.ndarray):
                for row, x in zip(rows, values.numbers(node).tolist(), strict=True):
                    if row.sequence.traced:
                        row.signals[text] = float(x)

    def reached(self, row: Row) -> bool:
        """Return whether the `until` of a row's borrowed stay holds on this step."""
        until = row.sequence.state.until
        if until is None or row.values is None or self.untils[until] not in row.values:
            return False
        return bool(row.values.numbers(self.untils[until])[row.values_at])

    def decide(self, rows: list[Row]) -> None:
        """Give each row the decision of the first rule that holds."""
        groups: dict[int, list[Row]] = {}
        for row in rows:
            groups.setdefault(id(row.values), []).append(row)
        for group in groups.values():
            values = group[0].values or Values()
            at = [row.values_at for row in group]
            fired = self._fired(values, len(group), at)
            numbers = self._numbers(values, set(fired), at)
            for place, (row, rule) in enumerate(zip(group, fired, strict=True)):
                row.decision = self._decision(row, rule, place, numbers)

    def _fired(self, values: Values, n: int, at: list[int]) -> list[int]:
        """Return the first rule that holds, by row."""
        if len(self.rules) == 1 and not isinstance(self.rules[0].go, Borrow):
            return [0] * n
        # Where even `otherwise` is passed over, a borrow of nothing, none of the rules fires.
        fired = [len(self.rules)] * n
        left = list(range(n))
        for index, rule in enumerate(self.rules):
            held = self._holds(rule, values, at)
            for place in left:
                if held is None or held[place]:
                    fired[place] = index
            left = [place for place in left if fired[place] > index]
        return fired

    def _holds(self, rule: Rule, values: Values, at: list[int]) -> list[bool] | None:
        """Return for which rows a rule holds; None for all."""
        needed = [] if rule.when is None else [rule.when]
        if isinstance(rule.go, Borrow):
            needed.append(rule.go.most)
        if any(node not in values for node in needed):
            return [False] * len(at)
        held = None
        if rule.when is not None:
            true = values.numbers(rule.when).tolist()
            held = [bool(true[row]) for row in at]
        if isinstance(rule.go, Borrow):
            most = values.numbers(rule.go.most).tolist()
            enough = [most[row] >= 1 for row in at]
            held = enough if held is None else [a and b for a, b in zip(held, enough, strict=True)]
        return held

    def _numbers(self, values: Values, fired: set[int], at: list[int]) -> dict[int, list[float]]:
        """Return the numbers that the fired rules need, by node, then row."""
        nodes: set[int] = set()
        for index in fired - {len(self.rules)}:
            rule = self.rules[index]
            nodes |= {assign.value for assign in rule.sets if assign.value in values}
            if isinstance(rule.go, Borrow):
                nodes.add(rule.go.most)
        return {node: [float(x) for x in values.numbers(node)[at].tolist()] for node in nodes}

    def _decision(
        self, row: Row, index: int, place: int, numbers: dict[int, list[float]]
    ) -> Decision:
        state, here = row.sequence.state, self.model
        if index == len(self.rules):
            return Decision(True, here)
        rule = self.rules[index]
        variables = None
        if rule.sets:
            variables = state.vars.copy()
            for assign in rule.sets:
                if assign.value in numbers:
                    variables[assign.var] = numbers[assign.value][place]
        match rule.go:
            case Stay():
                return Decision(rule.keep, here, index, vars=variables)
            case Stop():
                return Decision(rule.keep, None, index, vars=variables)
            case To(model=target):
                if not rule.keep and tried(state, here) >> target & 1:
                    # The target had its turn at this position: the last candidate is committed.
                    return Decision(True, here, index, vars=variables)
                return Decision(rule.keep, target, index, vars=variables)
            case Mix():
                seed = row.sequence.sampling.seed
                target = draw(rule.go, seed, state.position + 1, here)
                return Decision(rule.keep, target, index, vars=variables)
            case Borrow(model=target, until=until):
                most = whole(numbers[rule.go.most][place])
                return Decision(rule.keep, target, index, most, until, variables)


def _reads(rule: Rule) -> Iterable[int]:
    """Return the nodes that a rule reads."""
    if rule.when is not None:
        yield rule.when
    if isinstance(rule.go, Borrow):
        yield rule.go.most
    yield from (assign.value for assign in rule.sets)
