"""Restricted Python: the same policy in both spellings is one value; what is outside the subset is told, all at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tokenrouter import lang
from tokenrouter.commands.check import everything
from tokenrouter.dsl.load import examine, parse_text

ROUTE = """route 1
model small { use "org/small-0.6b"  cost 1.0 }
model large { use "org/large-32b"  cost 9.5  dtype bfloat16  tensor_parallel 2 }
head diverge { file "d.safetensors"  reads small.{hidden, logits, token} }
param tau: nats = 0.35 in [0.0, 4.0]
var turns: count = 0
signal shaky = mean(entropy, 8) > tau and margin < 0.1

policy r_stitch {
  start {
    when prompt_tokens > 2000 -> large
    otherwise -> mix { small: 0.75  large: 0.25 }
  }
  at small {
    when shaky or diverge >= 0.62 -> retry large
    when token in {"a", "b"} and not (class is word) -> borrow large for 4 set turns = turns + 1
    when turns > 3 and request.tier == "free" -> stop
    when 2 * entropy - 1 > tau -> borrow large until maxprob > 0.9 at most 8
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    when share(large) > 0.5 -> commit then mix { small: 0.5  large: 0.5 }
    otherwise -> commit then borrow small for turns
  }
  enforce share(large) <= 0.4
  guarantee count(large) <= 1000
  objective throughput where speed >= 20
  fallback small
  template from large
}

test "an unsure token" for r_stitch {
  at small given diverge = 0.9, token is "x" -> retry large
  start given prompt_tokens = 3000 -> large
}
"""

PYTHON = '''"""A policy."""
from tokenrouter.lang import at, borrow, case, commit, count, enforce, guarantee, head, mean, mix, model, param, policy
from tokenrouter.lang import retry, share, signal, start, stop, test, var

small = model("org/small-0.6b", cost=1.0)
large = model("org/large-32b", cost=9.5, dtype="bfloat16", tensor_parallel=2)
diverge = head("d.safetensors", of=small, reads=("hidden", "logits", "token"))
tau = param(0.35, unit="nats", within=(0.0, 4.0))
turns = var(0, unit="count")


@signal
def shaky(step):
    return mean(step.entropy, 8) > tau and step.margin < 0.1


@policy(
    start=None,
    claims=[enforce(share(large) <= 0.4), guarantee(count(large) <= 1000)],
    objective="throughput",
    speed=20,
    fallback=small,
    template_from=large,
)
class RStitch:
    """Entropy ping-pong."""

    @start
    def first(request):
        if request.prompt_tokens > 2000:
            return large
        return mix({small: 0.75, large: 0.25})

    @at(small)
    def small_step(self, step):
        if shaky(step) or diverge(step) >= 0.62:
            return retry(large)
        elif step.token in {"a", "b"} and not step.token_class == "word":
            return borrow(large, 4, set={turns: turns + 1})
        if turns > 3 and step.request.tier == "free":
            return stop()
        if 2 * step.entropy - 1 > tau:
            return borrow(large, until=lambda s: s.maxprob > 0.9, most=8)
        return commit()

    @at(large)
    def large_step(step):
        if step.entropy <= tau:
            return commit(then=small)
        if step.share(large) > 0.5:
            return commit(then=mix({small: 0.5, large: 0.5}))
        else:
            return commit(then=borrow(small, turns))


test(
    "an unsure token",
    of=RStitch,
    cases=[
        case(at=small, given={"diverge": 0.9, "token": "x"}, expect=retry(large)),
        case(given={"prompt_tokens": 3000}, expect=large),
    ],
)
'''.replace("    start=None,\n", "")


def test_both_spellings_are_one_policy():
    route = parse_text(ROUTE, "p.route").only()
    python = parse_text(PYTHON, "p.py").only()

    assert python == route
    assert [(t.name, t.cases) for t in python.tests] == [(t.name, t.cases) for t in route.tests]


def test_the_file_is_never_executed():
    text = PYTHON + '\nraise SystemExit("executed")\n'

    assert [d.code for d in examine(text, "p.py").diagnostics] == ["TR6002"]


def test_all_mistakes_are_told_in_their_places_and_cost_no_other():
    text = (
        PYTHON.replace("cost=1.0", "costs=1.0")
        .replace("step.margin < 0.1", "[x for x in step]")
        .replace("return retry(large)\n        elif", "step.x = 1\n        elif")
        .replace("return commit(then=small)", "return comit(then=small)")
        + "import os\nfor i in range(3): pass\n"
    )

    found = examine(text, "p.py").diagnostics

    assert [(d.code, text[d.span.start : d.span.end].splitlines()[0]) for d in found] == [
        ("TR6006", "costs=1.0"),
        ("TR6004", "[x for x in step]"),
        ("TR6005", "step.x = 1"),
        ("TR6004", "comit(then=small)"),
        ("TR6003", "import os"),
        ("TR6002", "for i in range(3): pass"),
    ]


def test_names_and_units_are_checked_as_in_the_other_spelling():
    text = PYTHON.replace("step.entropy <= tau", "'é🎉' == step.entrpy and tau > step.maxprob")

    found = examine(text, "p.py").diagnostics

    assert [(d.code, text[d.span.start : d.span.end]) for d in found] == [
        ("TR1002", "entrpy"),
        (
            "TR1101",
            "'é🎉' == step.entrpy and tau > step.maxprob"[len("'é🎉' == step.entrpy and ") :],
        ),
    ]


@pytest.mark.parametrize("text", ["def (", "x = 'a", "(" * 500, "\0", "if x:\nreturn"])
def test_what_is_no_python_is_one_diagnostic(text):
    assert [d.code for d in examine(text, "p.py").diagnostics] == ["TR6001"]


def test_comments_are_kept():
    text = PYTHON.replace("small = model", "# the quick one\nsmall = model").replace(
        "return stop()", "return stop()  # enough"
    )

    said = parse_text(text, "p.py").only().comments

    assert [(c.anchor, c.place, c.text) for c in said] == [
        ("file", "above", "# A policy."),
        ("model small", "above", "# the quick one"),
        ("policy", "above", "# Entropy ping-pong."),
        ("rule small 2", "end", "# enough"),
    ]


def test_a_docstring_is_comments_above_what_it_stands_in():
    text = '''"The file."
from tokenrouter.lang import at, commit, model, policy, signal
small = model("x", cost=1)
@signal
def unsure(step):
    "What is unsure."
    return step.entropy > 1
@policy(start=small)
class P:
    """Writes it all.

    And \\ud800 no more.
    """
    @at(small)
    def step(step):
        'One' "rule."
        return commit()
'''

    said = parse_text(text, "p.py").only().comments

    assert [(c.anchor, c.place, c.text) for c in said] == [
        ("file", "above", "# The file."),
        ("signal unsure", "above", "# What is unsure."),
        ("policy", "above", "# Writes it all."),
        ("policy", "above", "#"),
        ("policy", "above", "# And \\ud800 no more."),
        ("at small", "above", "# Onerule."),
    ]


def test_the_example_of_the_language_page_is_sound_in_both_spellings(tmp_path):
    text = "from tokenrouter.lang import at, commit, model, param, policy, retry\n\n" + (
        'small = model("s", cost=1.0)\nlarge = model("l", cost=9.5)\ntau = param(0.35, unit="nats", within=(0.0, 4.0))\n\n\n'
        "@policy(start=small)\nclass RStitch:\n    @at(small)\n    def small_step(step):\n        if step.entropy > tau:\n"
        "            return retry(large)\n        return commit()\n\n    @at(large)\n    def large_step(step):\n"
        "        if step.entropy <= tau:\n            return commit(then=small)\n        return commit()\n"
    )

    assert everything(text, "p.py").diagnostics == ()


def test_the_names_really_exist_and_the_file_can_be_imported(tmp_path):
    (tmp_path / "policy_file.py").write_text(PYTHON, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "policy_file.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert set(lang.__all__) <= set(vars(lang))


def test_an_editors_type_checker_accepts_the_file(tmp_path):
    package = tmp_path / "tokenrouter"  # the names alone, so that nothing else need be checked
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "lang.py").write_text(
        Path(lang.__file__).read_text(encoding="utf-8"), encoding="utf-8"
    )
    (tmp_path / "policy_file.py").write_text(PYTHON, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "policy_file.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
