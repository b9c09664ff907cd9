"""What the words of the language mean, in a sentence each; and what completion and hover say of signals and units.

The words themselves come from the grammar's tables, signals from `tokenrouter.signals`: a test holds this page to both.
"""

from __future__ import annotations

from math import isinf

from tokenrouter.dsl.names import usage
from tokenrouter.dsl.units import noun
from tokenrouter.signals import SIGNALS, WINDOWS, SignalKind

WORDS: dict[str, str] = {
    "route": "the first word of a file: the version of the language that it is in",
    "import": 'brings in the declarations of another file: `import "common.route"`',
    "model": 'declares a model: `model small { use "org/small"  cost 1 }`',
    "head": 'declares a router head: `head h { file "h.safetensors"  reads small.{hidden} }`',
    "param": "declares a dial, settable at compile time and per request: `param tau: nats = 0.35 in [0, 4]`",
    "var": "declares a variable of the request: `var n: count = 0`",
    "signal": "names an expression: `signal shaky = mean(entropy, 8) > tau`",
    "policy": "declares a policy; one policy compiles to one plan",
    "test": "cases that `trc test` runs through the route programs: what happens under what is given",
    "for": "names the policy of a test, or how long a borrowed stay is: `borrow large for 4`",
    "start": "says which model a request starts at",
    "at": "the rules of one model, asked in order on each of its steps",
    "any": "every model that has no block of its own",
    "when": "a guard; the first rule whose guard holds decides the step",
    "otherwise": "the last rule of a block: what happens where no guard holds",
    "commit": "keep the candidate; with `then`, another model decides the next position",
    "then": "who decides the next position",
    "retry": "drop the candidate; the named model decides this position",
    "borrow": "drop the candidate; the named model writes the next tokens, then the request comes back",
    "until": "ends a borrowed stay early, asked on the lender's steps",
    "most": "the most tokens of a borrowed stay: `until maxprob > 0.9 at most 8`",
    "mix": "the next model is drawn: `mix { small: 0.7  large: 0.3 }`",
    "stop": "the request ends with this token",
    "set": "gives a request variable its next value; all read the values before the step",
    "guarantee": "a bound that the compiler proves or refuses: `guarantee share(large) <= 40%`",
    "enforce": "a bound that the compiler makes true, by guards on every hand-off",
    "objective": "what windows are chosen for: `throughput` or `latency`",
    "where": "the floor of an objective: `where speed >= 20 tokens/s`",
    "fallback": "the model that goes on where a bound leaves no other; the start model without it",
    "template": "`template from M`: whose chat template the prompt is written with",
    "from": "`template from M`",
    "given": 'what a case of a test supposes: `given entropy = 1.2, token is "x"`',
    "and": "both conditions",
    "or": "one of the conditions, or both",
    "not": "the condition does not hold",
    "is": 'asks for the candidate\'s text or class: `token is "x"`, `class is number`',
    "in": 'one of several texts: `token in {"a", "b"}`; or the bounds of a param',
    "true": "the condition that holds",
    "false": "the condition that does not hold",
    "nats": "a unit: of entropies and log probabilities",
    "ms": "a unit: milliseconds",
    "tokens": "a unit: a count of tokens",
    "fuse": "reserved for the next version",
    "verify": "reserved for the next version",
    "probe": "reserved for the next version",
    "undo": "reserved for the next version",
}
WINDOW_MEANINGS: dict[str, str] = {
    "mean": "mean of a signal over the last n steps at this model",
    "ewma": "exponentially weighted mean of a signal, with weight 2/(n + 1) on this step",
    "max": "largest value of a signal over the last n steps at this model",
}
PROPERTIES: dict[str, str] = {
    "use": "path or hub name of the weights",
    "cost": "what one step costs, in any unit that all models share",
    "dtype": "the numbers that the weights are computed in",
    "quantize": "how the weights are kept",
    "tensor_parallel": "how many devices share the model",
    "file": "the head's file, relative to the policy",
    "python": "the head's class, `package.module:Class`",
    "kind": "the head's kind, where its parts do not tell",
    "reads": "the parts of a step that the head reads: `small.{hidden, logits, token}`",
}


def signal_page(kind: SignalKind) -> str:
    """Return what there is to know of a built-in signal, as Markdown."""
    written = usage(kind.name) if kind.args else kind.name
    low, high = _bound(kind.low), _bound(kind.high)
    close = ")" if isinf(kind.high) else "]"
    open_ = "(" if isinf(kind.low) else "["
    lines = [f"**{written}**: {kind.meaning}", f"unit: {noun(kind.unit)}"]
    lines.append(f"range: {open_}{low}, {high}{close}")
    if kind.in_start:
        lines.append("`start` rules may read it")
    if kind.needs == "load":
        lines.append("depends on load: a policy that reads it is not reproducible")
    return "\n\n".join(lines)


def window_page(name: str) -> str:
    """Return what a window over a signal is."""
    return f"**{usage(name)}**: {WINDOW_MEANINGS[name]}\n\nunit: that of the signal"


def builtin(name: str) -> str | None:
    """Return the page of a built-in name; None where it is none."""
    if name in SIGNALS:
        return signal_page(SIGNALS[name])
    if name in WINDOWS:
        return window_page(name)
    if name == "token":
        return '**token**: the candidate\'s text: `token is "x"`, `token in {"a", "b"}`'
    if name == "class":
        return "**class**: the lexical class of the candidate's text: `class is number`"
    return None


def _bound(value: float) -> str:
    return ("-" if value < 0 else "") + "∞" if isinf(value) else f"{value:g}"
