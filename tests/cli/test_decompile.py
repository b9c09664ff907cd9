"""`trc decompile`: a plan, its text, and the plan of that text mean the same, and nothing is lost on the way."""

import re
from pathlib import Path

import msgspec
import pytest

import tokenrouter
from tests.factories import save_bench
from tokenrouter import cli
from tokenrouter.compiler.decompile import decompile
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source
from tokenrouter.plan.io import write

EXAMPLES = Path(__file__).parents[2] / "examples"

EVERYTHING = """# what stands above the header
route 1

# the small one
model small { use "small"  cost 1 }  # cheap
model large { use "large"  cost 4 }
model half { use "half"  cost 2.5 }

param tau: nats = 2.5 in [0, 4]  # the dial
param sure: prob = 90%
var turns: count = 1
signal shaky = mean(entropy, 8) > tau and margin < 0.1

policy everything {
  start {
    when prompt_tokens > 200 -> large
    otherwise -> small
  }
  # here it is unsure
  at small {
    when shaky or token in {"Wait", "\\n"} -> borrow large until maxprob > sure at most 2 * turns + 1 set turns = turns + 1
    when not (class is word or entropy < 0.5) and request.tier == "paid" -> retry large  # who pays
    when (position > 4 or chance < 0.2) and count(large) * 2 <= position -> commit then borrow large for 2
    otherwise -> commit
  }
  at large {
    when rank > 3 and logprob < -1.5 -> stop
    otherwise -> commit then mix { small: 0.75  large: 0.25 }
    # nothing below
  }
  enforce count(large) <= 40
  template from large
}

test "shaky goes over" for everything {
  at small given entropy = 3, margin = 0.01 -> borrow large until maxprob > sure at most 2 * turns + 1
}
# the end
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


def round_trip(bench, text):
    path = bench.root / "p.route"
    path.write_text(bench.text(text), encoding="utf-8")
    plan = tokenrouter.compile(path)
    path.write_text(decompile(plan), encoding="utf-8")
    return plan, tokenrouter.compile(path), path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.route")), ids=lambda path: path.stem)
def test_an_example_comes_back_with_the_same_meaning(bench, path):
    plan, again, told = round_trip(bench, path.read_text(encoding="utf-8"))

    assert told == layout(parse(Source.of("p", bench.text(path.read_text(encoding="utf-8")))))
    assert plan.program_hash == again.program_hash
    assert plan.tuning_hash == again.tuning_hash


def test_nothing_is_lost_on_the_way(bench, golden):
    plan, again, text = round_trip(bench, EVERYTHING)

    golden(text.replace(str(bench.root), "BENCH"))
    assert plan.program_hash == again.program_hash
    for field in ("models", "params", "vars", "heads", "start", "programs", "claims", "tokenizer"):
        assert getattr(plan, field) == getattr(again, field), field
    assert plan.windows == again.windows
    assert {c.text for c in plan.surface.comments} == {c.text for c in again.surface.comments}
    assert plan.surface.signals == again.surface.signals
    assert [t.name for t in plan.surface.tests] == [t.name for t in again.surface.tests]
    assert len(plan.surface.unreached) == len(again.surface.unreached) == 1


NAMED = """route 1
model small { use "small" }
model large { use "large" }
head spare { file "none.safetensors"  reads small.{hidden} }
head odd { python "package.module:Head"  reads large.{hidden, logits, token} }
signal wild = entropy > 2 and margin < 0.1
signal calm = mean(entropy, 8)
signal lost = wild and calm > 1 or rank > 9
signal long = prompt_tokens > 200 and prompt_tokens < 9000

policy p {
  start {
    when long and request.tier == "paid" -> large
    otherwise -> small
  }
  at small {
    when position > 3 and wild and chance < 0.5 -> retry large
    when not lost -> borrow large until wild at most 4
    otherwise -> commit
  }
  at any {
    when calm < 0.5 -> commit then small
    otherwise -> commit
  }
}

test "wild goes over" for p {
  at small given wild = true, position = 5, chance = 0.1 -> retry large
}
"""


def test_names_of_signals_and_heads_that_no_rule_reads_survive_both_spellings(bench):
    plan, again, told = round_trip(bench, NAMED)
    python, spelt = python_trip(bench, plan)
    back = decompile(python)

    assert plan.program_hash == again.program_hash == python.program_hash
    for text in (told, back):
        text = " ".join(text.split())
        for rule in (
            'when long and request.tier == "paid" -> large',
            "when position > 3 and wild and chance < 0.5 -> retry large",
            "when not lost -> borrow large until wild ",
            "when calm < 0.5 -> commit then small",
            "signal wild = entropy > 2 and margin < 0.1",
            "signal lost = wild and calm > 1 or rank > 9",
            "reads small.{hidden} }",
            'head odd { python "package.module:Head" reads large.{hidden, logits, token} }',
            "at small given wild = true, position = 5, chance = 0.1 -> retry large",
        ):
            assert rule in text, text
    assert "if step.position > 3 and wild(step) and step.chance < 0.5:" in spelt
    assert 'spare = head("' in spelt and 'odd = head(python="package.module:Head", of=' in spelt


def test_docstrings_of_python_come_back_as_comments_in_both_spellings(bench):
    text = """"Demo."
from tokenrouter.lang import at, commit, model, policy
small = model("small", cost=1)
@policy(start=small)
class P:
    "Only the small one."
    @at(small)
    def step(step):
        "Nothing else to do."
        return commit()
"""
    path = bench.root / "docs.py"
    path.write_text(bench.text(text), encoding="utf-8")
    plan = tokenrouter.compile(path)

    again, python = python_trip(bench, plan)

    for told in (decompile(plan), python, decompile(again)):
        said = [line.strip() for line in told.splitlines() if "#" in line]
        assert said == ["# Demo.", "# Only the small one.", "# Nothing else to do."]


def test_decompiling_twice_gives_the_same_text(bench):
    _, again, text = round_trip(bench, EVERYTHING)

    assert decompile(again) == text
    assert laid_out(text)


def test_the_verb_writes_a_file_or_stdout(bench, tmp_path, capsys):
    plan, _, text = round_trip(bench, (EXAMPLES / "demo.route").read_text(encoding="utf-8"))
    write(plan, tmp_path / "plan.json")

    assert cli.main(["decompile", str(tmp_path / "plan.json")]) == 0
    assert capsys.readouterr().out == text
    assert (
        cli.main(["decompile", str(tmp_path / "plan.json"), "-o", str(tmp_path / "p.route")]) == 0
    )
    assert (tmp_path / "p.route").read_text(encoding="utf-8") == text


def test_paths_are_written_so_that_they_hold_from_where_the_text_goes(bench, tmp_path):
    route = bench.root / "r2r.route"
    route.write_text(bench.text((EXAMPLES / "r2r.route").read_text(encoding="utf-8")))
    plan = tokenrouter.compile(route)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "h.safetensors").write_bytes(Path(plan.heads[0].file).read_bytes())
    head = msgspec.structs.replace(plan.heads[0], file="heads/h.safetensors")
    write(msgspec.structs.replace(plan, heads=[head]), tmp_path / "plan.json")

    for name, said in (("deep/er/p.route", "../../heads/h"), ("p.py", "heads/h")):
        more = ["--python"] if name.endswith(".py") else []
        told = tmp_path / name
        assert cli.main(["decompile", str(tmp_path / "plan.json"), "-o", str(told), *more]) == 0
        assert f'"{said}.safetensors"' in told.read_text(encoding="utf-8")
        assert tokenrouter.compile(told).program_hash == plan.program_hash


def sourceless(plan):
    """Return a plan without the text that it came from, as one that was edited by hand is read."""
    return msgspec.structs.replace(plan, surface=msgspec.structs.replace(plan.surface, source=""))


def laid_out(text, name="p.route"):
    return layout(parse(Source.of(name, text))) == text


def test_a_plan_without_its_text_is_told_from_its_programs(bench):
    plan, _, _ = round_trip(bench, EVERYTHING)

    told = decompile(sourceless(plan))

    path = bench.root / "p.route"
    path.write_text(told, encoding="utf-8")
    assert tokenrouter.compile(path).program_hash == plan.program_hash
    assert laid_out(told)
    assert "# who pays" in told and "signal shaky" in told


def test_what_a_policy_imports_comes_back_with_its_comments_in_both_spellings(bench):
    (bench.root / "inner.route").write_text(
        "# inner\nroute 1\n# the dial\nparam tau: nats = 2.5 in [0, 4]  # of nats\n# inner ends\n",
        encoding="utf-8",
    )
    (bench.root / "common.route").write_text(
        bench.text(
            '# shared\nroute 1  # one\nimport "inner.route"  # taken in\n'
            '# the small one\nmodel small { use "small"  cost 1 }  # cheap\n'
            'model large { use "large"  cost 4 }\n'
            '# of nobody here\nmodel half { use "half" }\n\n# shared ends\n'
        ),
        encoding="utf-8",
    )
    path = bench.root / "p.route"
    path.write_text(
        '# top\nroute 1\nimport "common.route"\n# a mixture\npolicy p {\n  start mix { small: 1 large: 2 }\n'
        '  at any {\n    # first\n    when entropy > tau and token is not "x" -> retry large\n'
        "    when class in {word, code} -> commit then mix { small: 1 large: 2 }\n"
        "    otherwise -> commit # else\n  }\n}\n# other\npolicy q { start half at any { otherwise -> commit } }\n"
        'test "t" for p { at small given entropy = 3, class is word -> retry large }\n# bye\n',
        encoding="utf-8",
    )
    plan = tokenrouter.compile(path, policy="p")
    told = decompile(plan)
    path.write_text(told, encoding="utf-8")
    again = tokenrouter.compile(path)
    python, spelt = python_trip(bench, plan)

    kept = "top,shared,one,inner,the dial,of nats,inner ends,taken in,the small one,cheap,shared ends,a mixture,first,else,bye"
    for text in (told, spelt, decompile(python)):
        assert sorted(re.findall("# (.*)", text)) == sorted(kept.split(","))
        assert "0.33" not in text
    for text in (told, decompile(python)):
        assert laid_out(text)
        assert "start mix { small: 1  large: 2 }" in text
        assert "at any {" in text and 'token is not "x"' in text and "class in {word, code}" in text
    assert "mix({small: 1, large: 2})" in spelt and "@at(ANY)" in spelt
    assert 'step.token != "x"' in spelt and 'step.token_class in {"word", "code"}' in spelt
    assert plan.program_hash == again.program_hash == python.program_hash


def test_dials_that_were_set_and_paths_are_those_of_the_plan(bench):
    path = bench.root / "p.route"
    text = "# set\n" + EVERYTHING.replace("param sure: prob = 90%", "param sure: prob = 90%  # why")
    path.write_text(bench.text(text), encoding="utf-8")
    plan = tokenrouter.compile(path, sets={"sure": 0.5})

    told = decompile(plan)

    assert "param sure: prob = 0.5  # why" in told and "param tau: nats = 2.5 in [0, 4]" in told
    assert told.startswith("# set")
    assert laid_out(told)


def test_a_plan_that_was_edited_by_hand_is_told_as_it_is(bench):
    plan, _, _ = round_trip(bench, (EXAMPLES / "demo.route").read_text(encoding="utf-8"))
    small, large = plan.programs
    kept = msgspec.structs.replace(small.rules[0], keep=True)
    edited = msgspec.structs.replace(
        plan, programs=[msgspec.structs.replace(small, rules=[kept, small.rules[1]]), large]
    )

    assert "when entropy > tau -> commit then large" in decompile(edited)
    assert "-> retry large" in decompile(plan)


def test_what_enforce_added_is_taken_out_again(bench):
    text = (EXAMPLES / "demo.route").read_text(encoding="utf-8")
    text = text.replace("policy demo {", "policy demo {\n  enforce share(large) <= 40%")
    plan, again, told = round_trip(bench, text)
    nameless = msgspec.structs.replace(
        plan, provenance=msgspec.structs.replace(plan.provenance, rules=[])
    )

    assert plan.program_hash == again.program_hash
    assert "count(large)" not in told and "enforce share(large) <= 40%" in told
    for edited in (nameless, sourceless(nameless)):
        assert "count(large)" not in decompile(edited)


def python_trip(bench, plan):
    write(plan, bench.root / "plan.json")
    path = bench.root / "p.py"
    assert cli.main(["decompile", "--python", str(bench.root / "plan.json"), "-o", str(path)]) == 0
    return tokenrouter.compile(path), path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.route")), ids=lambda path: path.stem)
def test_an_example_means_the_same_in_python(bench, path):
    file = bench.root / path.name
    file.write_text(bench.text(path.read_text(encoding="utf-8")), encoding="utf-8")
    plan = tokenrouter.compile(file)

    again, _ = python_trip(bench, plan)

    assert (again.program_hash, again.policy) == (plan.program_hash, plan.policy)


def test_all_constructs_mean_the_same_in_python(bench, golden):
    plan, _, _ = round_trip(bench, EVERYTHING)

    again, text = python_trip(bench, plan)

    golden(text.replace(str(bench.root), "BENCH"))
    assert again.program_hash == plan.program_hash
    assert [test.name for test in again.surface.tests] == ["shaky goes over"]
    compile(text, "p.py", "exec")
