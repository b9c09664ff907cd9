"""The names of policies that are written in Python: for an editor to complete and a type checker to check.

`trc` parses such a file and never imports it; importing it by hand does nothing, since these functions only hold what
they are given. docs/language.md says what each means; `docs/language.md#restricted-python` shows the two spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "ANY",
    "Action",
    "Case",
    "Claim",
    "Model",
    "Request",
    "Step",
    "Value",
    "at",
    "borrow",
    "case",
    "commit",
    "count",
    "enforce",
    "ewma",
    "guarantee",
    "head",
    "max_over",
    "mean",
    "mix",
    "model",
    "param",
    "policy",
    "retry",
    "share",
    "signal",
    "start",
    "stop",
    "test",
    "var",
]

Unit = Literal["nats", "nats^2", "share", "prob", "number", "count", "ms", "bool"]


class Value:
    """A number that is known while a request runs."""

    def __lt__(self, other: Value | float) -> bool:
        return False

    def __le__(self, other: Value | float) -> bool:
        return False

    def __gt__(self, other: Value | float) -> bool:
        return False

    def __ge__(self, other: Value | float) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: Value | float) -> Value:
        return Value()

    def __radd__(self, other: float) -> Value:
        return Value()

    def __sub__(self, other: Value | float) -> Value:
        return Value()

    def __rsub__(self, other: float) -> Value:
        return Value()

    def __mul__(self, other: Value | float) -> Value:
        return Value()

    def __rmul__(self, other: float) -> Value:
        return Value()

    def __truediv__(self, other: Value | float) -> Value:
        return Value()

    def __rtruediv__(self, other: float) -> Value:
        return Value()

    def __neg__(self) -> Value:
        return Value()


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a policy may name."""

    use: str


class Head:
    """A trained router head, asked as `name(step)`."""

    def __call__(self, step: Step) -> Value:
        """Return its probability for a step."""
        return Value()


class Request:
    """What a client sent: metadata by name, and the length of the prompt."""

    prompt_tokens: Value = Value()

    def queue(self, of: Model) -> Value:
        """Return how many requests wait at a model; a load signal."""
        return Value()

    def __getattr__(self, name: str) -> Any:
        return Value()


class Step:
    """One step: its signals, and the candidate."""

    entropy: Value = Value()
    entropy_norm: Value = Value()
    varentropy: Value = Value()
    maxprob: Value = Value()
    margin: Value = Value()
    logprob: Value = Value()
    rank: Value = Value()
    chance: Value = Value()
    position: Value = Value()
    since_switch: Value = Value()
    switches: Value = Value()
    prompt_tokens: Value = Value()
    elapsed: Value = Value()
    token: str = ""
    token_class: Literal["code", "number", "word", "space", "newline", "punct", "special"] = "word"
    request: Request = Request()

    def mass(self, k: int) -> Value:
        """Return the probability of the k most likely tokens."""
        return Value()

    def column(self, id: int) -> Value:
        """Return the sigmoid of one raw logit."""
        return Value()

    def aleatoric(self, k: int) -> Value:
        """Return the aleatoric uncertainty over the k largest raw logits."""
        return Value()

    def epistemic(self, k: int) -> Value:
        """Return the epistemic uncertainty over the k largest raw logits."""
        return Value()

    def count(self, of: Model) -> Value:
        """Return how many committed tokens a model wrote."""
        return Value()

    def share(self, of: Model) -> Value:
        """Return which share of the committed tokens a model wrote."""
        return Value()

    def queue(self, of: Model) -> Value:
        """Return how many requests wait at a model; a load signal."""
        return Value()


@dataclass(frozen=True, slots=True)
class Mix:
    """A mixture, drawn from the request's own random stream."""

    weights: Mapping[Model, float]


@dataclass(frozen=True, slots=True)
class Borrow:
    """A borrowed stay, as an action or behind `commit(then=...)`."""

    model: Model


Action = Literal["commit", "retry", "stop"] | Borrow
Sets = Mapping[Value, "Value | float | bool"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A bound that is proved or enforced."""

    bound: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a test."""

    expect: object


class Everyone:
    """Every model without a block of its own."""


ANY = Everyone()


def model(
    use: str,
    *,
    cost: float = 1.0,
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = "float32",
    quantize: Literal["none", "int8"] = "none",
    tensor_parallel: int = 1,
) -> Model:
    """Declare a model under the name that it is assigned to."""
    return Model(use)


def param(value: float | bool, *, unit: Unit, within: tuple[float, float] | None = None) -> Value:
    """Declare a dial, settable at compile time and per request."""
    return Value()


def var(value: float | bool, *, unit: Unit) -> Value:
    """Declare a variable of one request, changed by `set=`."""
    return Value()


def head(
    file: str = "",
    *,
    of: Model,
    reads: Collection[Literal["hidden", "logits", "token"]],
    kind: Literal["linear", "mlp", "r2r"] | None = None,
    python: str = "",
) -> Head:
    """Declare a router head."""
    return Head()


def signal(function: Callable[[Step], Value | bool]) -> Callable[[Step], Any]:
    """Declare a derived signal: one `return` of an expression."""
    return function


def mean(of: Value, n: int) -> Value:
    """Return the mean over the last n steps at this model."""
    return Value()


def ewma(of: Value, n: int) -> Value:
    """Return the exponentially weighted mean over the last n steps at this model."""
    return Value()


def max_over(of: Value, n: int) -> Value:
    """Return the largest value over the last n steps at this model; `max(s, n)` in a `.route` file."""
    return Value()


def share(of: Model) -> Value:
    """Return the share of a model, in a claim or a test."""
    return Value()


def count(of: Model) -> Value:
    """Return the tokens of a model, in a claim or a test."""
    return Value()


def commit(then: Model | Mix | Borrow | None = None, *, set: Sets | None = None) -> Action:
    """Keep the candidate."""
    return "commit"


def retry(of: Model, *, set: Sets | None = None) -> Action:
    """Drop the candidate; another model decides this position."""
    return "retry"


def borrow(
    of: Model,
    n: int | Value | None = None,
    *,
    until: Callable[[Step], bool] | None = None,
    most: int | Value | None = None,
    set: Sets | None = None,
) -> Borrow:
    """Drop the candidate; another model writes n tokens, or until a condition holds and `most` at most."""
    return Borrow(of)


def mix(weights: Mapping[Model, float]) -> Mix:
    """Draw the next model."""
    return Mix(weights)


def stop(*, set: Sets | None = None) -> Action:
    """End the request with this token."""
    return "stop"


def enforce(bound: bool) -> Claim:
    """Have the compiler guard every hand-off by a bound."""
    return Claim(bound)


def guarantee(bound: bool) -> Claim:
    """Have the compiler prove a bound."""
    return Claim(bound)


def policy(
    *,
    start: Model | Mix | None = None,
    claims: Sequence[Claim] = (),
    objective: Literal["throughput", "latency"] = "throughput",
    speed: float | None = None,
    fallback: Model | None = None,
    template_from: Model | None = None,
) -> Callable[[type], type]:
    """Declare a policy: a class whose methods are the rules of its models."""
    return lambda cls: cls


def at(of: Model | Everyone) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the rules of a model: `if CONDITION: return ACTION`, and a last `return ACTION`."""
    return lambda function: function


def start(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the rules of the first model, over the request."""
    return function


def test(name: str, *, of: type, cases: Sequence[Case]) -> None:
    """Declare a test of a policy."""


def case(
    *,
    expect: Action | Model | Mix,
    at: Model | None = None,
    given: Mapping[Value | str, float | bool | str] | None = None,
) -> Case:
    """Say what must happen at a model, or without one at the start, under what is given."""
    return Case(expect)
