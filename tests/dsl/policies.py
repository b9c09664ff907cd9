"""Random `.route` texts that are right: every construct of the language, in any combination, as tokens and as text."""

from __future__ import annotations

from hypothesis import strategies as st

from tokenrouter.dsl.lexer import tokenize
from tokenrouter.dsl.source import Source

EVERYTHING = """route 1
model small { use "s" cost 1.5 quantize int8 }
model large { use "l" dtype bfloat16 tensor_parallel 2 }
head diverge { file "h.safetensors" reads small.{hidden, logits, token} }
param tau: nats = -0.5 in [-1, 4.0]
param sure: prob = 90%
param busy: bool = true
var turns: count = 1
var calm: bool = false
signal shaky = mean(entropy, 8) > tau and not (margin < 10%)
signal calmness = 2 * -entropy - 1 nats
"""
NUMBERS = {  # by unit: what has it, where it stands at `small`
    "nats": ["entropy", "logprob", "tau", "calmness", "ewma(entropy, 3)", "0.5", "1.25 nats", "-2"],
    "prob": ["maxprob", "mass(4)", "sure", "diverge", "chance", "max(margin, 2)", "20%", "0.125"],
    "count": [
        "position",
        "count(large)",
        "turns",
        "since_switch",
        "rank",
        "8 tokens",
        "3",
        "1_000",
    ],
    "share": ["share(small)", "entropy_norm", "mean(entropy_norm, 2)", "40%"],
}
FACTS = [
    'token is "\\n"', 'token is not "a b"', 'token in {"#", "}", "\\u{1F600}"}', "class is code",
    "class in {word, number}", 'request.tier == "paid"', "busy", "calm == true", "shaky",
    "diverge >= 0.62",
]  # fmt: skip


@st.composite
def numbers(draw: st.DrawFn, unit: str, depth: int = 1) -> str:
    """A number in a unit."""
    if depth and draw(st.integers(0, 3)) == 0:
        left, right = draw(numbers(unit, depth - 1)), draw(numbers(unit, depth - 1))
        return draw(st.sampled_from([f"({left} + {right})", f"2 * {left}", f"-({left}) - {right}"]))
    return draw(st.sampled_from(NUMBERS[unit]))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    """A condition."""
    kind = draw(st.integers(0, 5 if depth else 2))
    if kind == 0:
        return draw(st.sampled_from(FACTS))
    if kind <= 2:
        unit = draw(st.sampled_from(sorted(NUMBERS)))
        name = draw(st.sampled_from(NUMBERS[unit][:3]))
        sign = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        return f"{name} {sign} {draw(numbers(unit))}"
    parts = draw(st.lists(conditions(depth - 1), min_size=2, max_size=3))
    match kind:
        case 3:
            return "(" + " and ".join(parts) + ")"
        case 4:
            return "(" + " or ".join(parts) + ")"
        case _:
            return f"not {parts[0]}" if parts[0].startswith("(") else f"not ({parts[0]})"


@st.composite
def actions(draw: st.DrawFn, other: str) -> str:
    """An action at a model, and what it sets."""
    stay = draw(st.sampled_from(["4", "turns", "turns * 2 + 1", "8 tokens"]))
    until = f"until {draw(conditions(1))} at most {stay}".replace("diverge", "sure")
    made = draw(
        st.sampled_from(
            [
                "commit",
                f"commit then {other}",
                f"retry {other}",
                f"borrow {other} for {stay}",
                f"commit then borrow {other} for {stay}",
                f"borrow {other} {until}",
                "commit then mix { small: 0.5, large: 50% }",
                "commit then mix { large: 3 small: 1 }",
                "stop",
            ]
        )
    )
    sets = draw(
        st.lists(st.sampled_from(["set turns = turns + 1", "set calm = true"]), unique=True)
    )
    return " ".join([made, *sets])


@st.composite
def blocks(draw: st.DrawFn, model: str, other: str) -> str:
    """The rules of a model."""
    guards = draw(st.lists(conditions(), max_size=3))
    if model != "small":  # the head reads steps of `small`
        guards = [guard.replace("diverge", "sure") for guard in guards]
    rules = [f"when {guard} -> {draw(actions(other))}" for guard in guards]
    return f"at {model} {{ {' '.join(rules)} otherwise -> {draw(actions(other))} }}"


STARTS = [
    "start small",
    "start mix { small: 0.5, large: 50% }",
    "start { when prompt_tokens > 2_000 and busy -> large otherwise -> mix { small: 1 large: 2 } }",
]
MEMBERS = [
    "enforce share(large) <= 40%", "guarantee count(large) <= 1_000", "objective latency",
    "objective throughput where speed >= 20 tokens/s", "fallback small", "template from large",
]  # fmt: skip
CASES = [
    "at small given entropy = 1.2, margin = 5% -> retry large",
    'at large given token is "so" -> commit then small set turns = 2',
    "at small given class is code, mean(entropy, 8) = 3 nats -> borrow large for 4",
    "start given prompt_tokens = 3000, busy = true -> large",
    "at small -> stop",
    "at small given mass(4) = 50%, shaky = true, share(large) = 10% -> commit",
]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A file with one policy and its tests, on as few lines as its author liked."""
    members = draw(
        st.lists(st.sampled_from(MEMBERS), unique_by=lambda member: member.split()[0], max_size=4)
    )
    parts = [
        draw(st.sampled_from(STARTS)),
        draw(blocks("small", "large")),
        draw(blocks("large", "small")),
        *members,
    ]
    body = " ".join(draw(st.permutations(parts)))
    cases = draw(st.lists(st.sampled_from(CASES), max_size=3))
    tests = f'test "it \\"does\\" # that" for p {{ {" ".join(cases)} }}\n' if cases else ""
    return f"{EVERYTHING}policy p {{ {body} }}\n{tests}"


def pieces(text: str) -> list[str]:
    """Return the tokens of a text, comments among them, without white space."""
    tokens, problems = tokenize(Source.of("p.route", text))
    assert problems == []
    return [
        tokens.text(i).rstrip()
        for i, kind in enumerate(tokens.kinds)
        if kind not in ("SPACE", "$END")
    ]


GAPS = st.sampled_from(
    [" "] * 8
    + ["\n", "\n\n\n", "\t", " # c\n", "\n# d\n", "\r\n", "\r", "\n\n   # e ( { \n\n", " #f\n#g\n"]
)  # fmt: skip


@st.composite
def scattered(draw: st.DrawFn) -> str:
    """A right file with comments and line breaks between any two tokens."""
    tokens = pieces(draw(texts()))
    gaps = draw(st.lists(GAPS, min_size=len(tokens), max_size=len(tokens)))
    end = draw(st.sampled_from(["", "\n", " # end", "\n\n# end\n", "\r\n\t"]))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return bom + "".join(gap + token for gap, token in zip(gaps, tokens, strict=True)) + end


# Two models that hand the request to and fro, and what is declared for them.
HEAD = """route 1

model small { use "s" }
model large { use "l" }

param tau: nats = 1 in [0, 4]

"""
PING_PONG = """policy NAME {
  start small
  at small {
    when entropy > tau -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
}
"""
