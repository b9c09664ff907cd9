"""The nodes of a program as lines of a kernel: `n5 = n3 > n4  # entropy > tau`."""

from __future__ import annotations

from math import inf, log

from tokenrouter.plan.nodes import node_type
from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    ClassIs,
    Compare,
    Const,
    HeadRef,
    Node,
    Not,
    Plan,
    Signal,
    TokenIn,
    Window,
)
from tokenrouter.plan.text import node_text
from tokenrouter.runtime.kernel.layout import COUNTS, Layout
from tokenrouter.runtime.random import CHANCE
from tokenrouter.signals import SIGNALS

PICKED = ("mass", "aleatoric", "epistemic")  # of the k largest logits
WIDTH = 120  # most characters of a comment
LIBRARY = {
    "logistic": ["sigmoid_of"],
    "online": [
        "FIELDS", "aleatoric_of", "entropy_of", "epistemic_of", "is_last", "join", "join_largest",
        "mass_of", "survey", "varentropy_of",
    ],
    "philox": ["draw"],
    "program": ["divide", "ewma_of", "max_of", "mean_of"],
}  # fmt: skip


class Names:
    """What a program's lines call its nodes, and what they share."""

    def __init__(self, plan: Plan, model: int, columns: Layout) -> None:
        self.plan = plan
        self.model = model
        self.columns = columns
        self.nodes = plan.programs[model].nodes
        self.rules = plan.programs[model].rules
        self.size = plan.tokenizer.size
        needed = [self.nodes[at] for at in columns.needed]
        signals = [node for node in needed if isinstance(node, Signal)]
        asked = [node.args[0] for node in signals if node.name in PICKED and not self._whole(node)]
        self.k = max(asked, default=0)
        self.slots = 1 << (self.k - 1).bit_length() if self.k else 0
        # Co-LLM's added rows speak through their signal only, in every program of the model.
        self.deferred = sorted(
            {n.args[0] for n in self.nodes if isinstance(n, Signal) and n.name == "column"}
        )

    def surveyed(self, at: int) -> bool:
        """Return whether a node is a figure of the logits that a survey gives."""
        node = self.nodes[at]
        return (
            isinstance(node, Signal)
            and SIGNALS[node.name].needs in ("logits", "candidate")
            and node.name != "column"
            and not self._whole(node)
        )

    def surveys(self) -> set[str]:
        """Return the names of the signals that a survey gives."""
        found = (self.nodes[at] for at in self.columns.needed if self.surveyed(at))
        return {node.name for node in found if isinstance(node, Signal)}

    def _whole(self, node: Signal) -> bool:
        """Return whether a node is the mass of the whole vocabulary, which is 1."""
        return node.name == "mass" and node.args[0] >= self.size

    def is_bool(self, at: int) -> bool:
        """Return whether a node is a condition."""
        return node_type(self.nodes[at], self.plan.params, self.plan.vars) == "bool"

    def text(self, at: int) -> str:
        """Return a node in the words of the policy, on one line."""
        return plain(node_text(self.plan, self.nodes, at))


def plain(text: str) -> str:
    """Return a policy's text on one line that is not too long, without what has no place in source."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def node_lines(names: Names) -> list[str]:
    """Return a line for each node that is needed, in dependency order."""
    lines = []
    for at in names.columns.needed:
        lines += [f"n{at} = {_value(names, at, names.nodes[at])}  # {names.text(at)}"]
    return lines


def imports(body: str) -> str:
    """Return the imports of what a kernel's lines call."""
    lines = []
    for module, known in LIBRARY.items():
        called = [name for name in known if f"{name}(" in body or f"({name} " in body]
        if called:
            lines.append(f"from tokenrouter_kernels.triton.{module} import {', '.join(called)}")
    return "\n".join(lines)


def _value(names: Names, at: int, node: Node) -> str:
    columns = names.columns
    if at in columns.numbers:
        loaded = f"tl.load(numbers + {columns.numbers.index(at)})"
        return f"{loaded} != 0" if names.is_bool(at) else loaded
    match node:
        case Compare() | Arith() | AllOf() | AnyOf() | Not():
            return _operation(node)
        case Const():
            return constant(node.value)
        case TokenIn() | ClassIs():
            table = columns.tables.index(at)
            return f"tl.load(tables_ptr + {table * names.size} + token) != 0"
        case HeadRef():
            return f"tl.load(heads + {columns.heads.index(node.head)})"
        case Window():
            return _window(names, at, node)
        case Signal():
            return _signal(names, node)
        case _:
            raise AssertionError(f"{node!r} is the host's")


def _operation(node: Compare | Arith | AllOf | AnyOf | Not) -> str:
    match node:
        case Arith(sign="/"):
            return f"divide(n{node.left}, n{node.right})"
        case Compare() | Arith():
            return f"n{node.left} {node.sign} n{node.right}"
        case AllOf():
            return " & ".join(f"n{of}" for of in node.of)
        case AnyOf():
            return " | ".join(f"n{of}" for of in node.of)
        case Not():
            return f"~n{node.of}"


def constant(value: float | bool | str) -> str:
    """Return a literal of its type."""
    if isinstance(value, bool):
        return f"tl.full([], {value}, tl.int1)"
    assert not isinstance(value, str), value
    text = f'float("{value}")' if value != value or abs(value) == inf else repr(float(value))
    return f"tl.full([], {text}, tl.float64)"


def _window(names: Names, at: int, node: Window) -> str:
    slot = names.columns.windows.index(at)
    past = f"past + {names.columns.past[slot]}" if node.n > 1 else "words"
    count = f"tl.load(words + {COUNTS + slot})"
    weight = f", {2.0 / (node.n + 1)!r}" if node.kind == "ewma" else ""
    if node.n == 1:
        count = "0"
    return f"{node.kind}_of({past}, {count}, n{node.of}{weight})"


def _signal(names: Names, node: Signal) -> str:
    k = node.args[0] if node.args else 0
    match node.name:
        case "chance":
            return f"draw(seed, position, {names.model}, {CHANCE})"
        case "column":
            return f"sigmoid_of(tl.load(logits_ptr + row * stride + {k}).to(wide)).to(tl.float64)"
        case "mass" if k >= names.size:
            return constant(1.0)
        case _:
            return f"({_figure(names, node.name, k)}).to(tl.float64)"


def _figure(names: Names, name: str, k: int) -> str:
    found = min(k, names.size)
    figures = {
        "entropy": "entropy_of(total, first)",
        "entropy_norm": f"entropy_of(total, first) / {log(names.size) if names.size > 1 else 1.0!r}",
        "varentropy": "varentropy_of(first, square)",
        "maxprob": "1 / total",
        "margin": "(1 - tl.exp(second - m)) / total",
        "logprob": "chosen - m - tl.log(total)",
        "rank": "before + 1",
        "mass": f"mass_of(top, m, total, {k}, SLOTS={names.slots})",
        "aleatoric": f"aleatoric_of(top, {found}, SLOTS={names.slots})",
        "epistemic": f"epistemic_of(top, {k}, {found}, SLOTS={names.slots})",
    }
    return figures[name]
