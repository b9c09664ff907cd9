"""Values of route-program nodes at one step, by plain recursion over the node list.

A value is a bool, a float or a text. Beside each comes whether rounding can touch it (`Known.exact`): a counter and a
random draw are exact, an entropy is not. Comparisons of inexact values leave their distance in `slack`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tokenrouter.plan import structs as s
from tokenrouter.runtime.reference import draws
from tokenrouter.runtime.reference.classes import is_class
from tokenrouter.runtime.reference.distribution import Distribution
from tokenrouter.runtime.reference.errors import BeyondReference
from tokenrouter.runtime.reference.trace import Slack


@dataclass(frozen=True, slots=True)
class Known:
    """A value, and whether it is free of rounding."""

    value: s.Value
    exact: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of one model lets a program see. Without a distribution, as at the start, prompt signals only."""

    model: int
    seed: int
    position: int
    prompt_tokens: int
    since_switch: int
    switches: int
    counts: list[int]
    params: list[s.Value]
    vars: list[Known]
    metadata: Mapping[str, s.Value]
    distribution: Distribution | None = None
    candidate: int = -1
    text: str = ""  # of the candidate
    head: Callable[[int], float] | None = None  # a router head by its index
    special: bool = False  # whether the candidate is a control token
    load: Mapping[int, float] = field(default_factory=dict)  # load signals as recorded, by node


@dataclass(eq=False, slots=True)
class Evaluator:
    """The nodes of one program at one step. `windows` holds, by node, the past values and gets the present ones."""

    nodes: list[s.Node]
    step: Step
    windows: dict[int, list[Known]] = field(default_factory=dict)
    slack: Slack = field(default_factory=Slack)
    _known: dict[int, Known] = field(default_factory=dict)

    def value(self, node: int) -> s.Value:
        """Return the value of a node."""
        return self.known(node).value

    def holds(self, node: int | None) -> bool:
        """Return whether a guard holds; None is `otherwise`."""
        return node is None or bool(self.value(node))

    def known(self, node: int) -> Known:
        """Return the value of a node and whether it is exact; evaluated once a step."""
        if node not in self._known:
            self._known[node] = self._evaluate(node)
        return self._known[node]

    def number(self, node: int) -> float:
        """Return the value of a numeric node."""
        return float(self.value(node))

    def _evaluate(self, at: int) -> Known:
        node = self.nodes[at]
        match node:
            case s.Window():
                return self._window(at, node)
            case s.Compare():
                return self._compare(node)
            case s.Arith():
                left, right = self.known(node.left), self.known(node.right)
                value = _arithmetic(node.sign, float(left.value), float(right.value))
                return Known(value, left.exact and right.exact)
            case s.AllOf():
                return _joined(all, [self.known(i) for i in node.of])
            case s.AnyOf():
                return _joined(any, [self.known(i) for i in node.of])
            case s.Not():
                operand = self.known(node.of)
                return Known(not operand.value, operand.exact)
            case s.Signal(name="queue" | "elapsed"):
                if at not in self.step.load:
                    raise BeyondReference(
                        f"`{node.name}` was not recorded at position {self.step.position}, and cannot be known otherwise"
                    )
                return Known(self.step.load[at], exact=True)
            case _:
                return self._leaf(node)

    def _leaf(self, node: s.Node) -> Known:
        """Return the value of a node without operands."""
        match node:
            case s.Const():
                return Known(node.value, exact=True)
            case s.ParamRef():
                return Known(self.step.params[node.param], exact=True)
            case s.VarRef():
                return self.step.vars[node.var]
            case s.RequestField():
                return Known(self._field(node), exact=True)
            case s.TokenIn():
                return Known(self.step.text in node.texts, exact=True)
            case s.ClassIs():
                return Known(is_class(node.name, self.step.text, self.step.special), exact=True)
            case s.Signal():
                return self._signal(node.name, node.args)
            case s.HeadRef():
                assert self.step.head is not None, "a head is read where there was no step"
                return Known(self.step.head(node.head), exact=False)
            case _:
                raise BeyondReference(f"the reference does not know the node `{node}`")

    def _field(self, node: s.RequestField) -> s.Value:
        value = self.step.metadata.get(node.name, node.default)
        return value if _kind(value) == _kind(node.default) else node.default

    def _signal(self, name: str, args: list[int]) -> Known:
        step = self.step
        total = sum(step.counts)
        match name:
            case "position":
                return Known(float(step.position), exact=True)
            case "since_switch":
                return Known(float(step.since_switch), exact=True)
            case "switches":
                return Known(float(step.switches), exact=True)
            case "prompt_tokens":
                return Known(float(step.prompt_tokens), exact=True)
            case "count":
                return Known(float(step.counts[args[0]]), exact=True)
            case "share":
                return Known(step.counts[args[0]] / total if total else 0.0, exact=True)
            case "chance":
                draw = draws.uniform(step.seed, step.position, step.model, draws.CHANCE)
                return Known(draw, exact=True)
            case _:
                assert step.distribution is not None, f"`{name}` is read where there was no step"
                return Known(self._of_logits(step.distribution, name, args), exact=False)

    def _of_logits(self, d: Distribution, name: str, args: list[int]) -> float:
        match name:
            case "entropy":
                return d.entropy()
            case "entropy_norm":
                return d.entropy_norm()
            case "varentropy":
                return d.varentropy()
            case "maxprob":
                return d.mass(1)
            case "margin":
                return d.margin()
            case "mass":
                return d.mass(args[0])
            case "column":
                return d.column(args[0])
            case "aleatoric":
                return d.evidence(args[0])[0]
            case "epistemic":
                return d.evidence(args[0])[1]
            case "logprob":
                return d.logprob(self.step.candidate)
            case "rank":
                self.slack = self.slack.joined(Slack(gap=d.gap(self.step.candidate)))
                return float(d.rank(self.step.candidate))
            case _:
                raise BeyondReference(f"the reference does not know the signal `{name}`")

    def _window(self, at: int, node: s.Window) -> Known:
        now = self.known(node.of)
        past = self.windows.get(at, [])
        values = [*past, now][-node.n :]
        self.windows[at] = values
        return Known(
            _aggregate(node.kind, node.n, [float(k.value) for k in values]),
            exact=all(k.exact for k in values),
        )

    def _compare(self, node: s.Compare) -> Known:
        left, right = self.known(node.left), self.known(node.right)
        exact = left.exact and right.exact
        if not exact and not isinstance(left.value, (bool, str)):
            distance = abs(float(left.value) - float(right.value))
            self.slack = self.slack.joined(Slack(threshold=distance))
        return Known(_compared(node.sign, left.value, right.value), exact)


def _kind(value: s.Value) -> str:
    return "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _compared(sign: str, left: s.Value, right: s.Value) -> bool:
    if sign == "==":
        return left == right
    if sign == "!=":
        return left != right
    a, b = float(left), float(right)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def _arithmetic(sign: str, a: float, b: float) -> float:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            return 0.0 if b == 0 else a / b


def _aggregate(kind: str, n: int, values: list[float]) -> float:
    """Return the mean, the maximum, or the exponential average with weight 2 / (n + 1), oldest first."""
    if kind == "mean":
        return sum(values) / len(values)
    if kind == "max":
        return max(values)
    weight = 2 / (n + 1)
    average = values[0]
    for value in values[1:]:
        average = weight * value + (1 - weight) * average
    return average


def _joined(how: Callable[[Iterable[bool]], bool], operands: list[Known]) -> Known:
    return Known(how(bool(k.value) for k in operands), all(k.exact for k in operands))


def needed(nodes: list[s.Node], roots: Iterable[int]) -> set[int]:
    """Return the nodes that `roots` need, themselves included."""
    found: set[int] = set()
    todo = list(roots)
    while todo:
        at = todo.pop()
        if at in found:
            continue
        found.add(at)
        match nodes[at]:
            case s.Compare(left=left, right=right) | s.Arith(left=left, right=right):
                todo += [left, right]
            case s.AllOf(of=of) | s.AnyOf(of=of):
                todo += of
            case s.Not(of=operand) | s.Window(of=operand):
                todo.append(operand)
            case _:
                pass
    return found
