"""`trc compile` and `tokenrouter.compile`: from policy text to a plan, and one clear line for what is wrong."""

import json
import re
import shutil
from pathlib import Path

import pytest

import tokenrouter
from tests.factories import EOS, save_bench, save_model
from tokenrouter import cli
from tokenrouter.plan.hash import hashes
from tokenrouter.plan.io import read
from tokenrouter.plan.verify import verify

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


def example(name):
    return (EXAMPLES / f"{name}.route").read_text(encoding="utf-8")


def write(bench, name, text):
    """Write a policy beside the tiny models, whose paths then are relative to it."""
    path = bench.root / f"{name}.route"
    path.write_text(text.replace(f"{bench.root}/", ""), encoding="utf-8")
    return path


def trc(*args):
    return cli.main([str(arg) for arg in args])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.route")), ids=lambda path: path.stem)
def test_every_example_compiles_to_a_plan_that_holds_together(bench, path, tmp_path, capsys):
    policy = write(bench, path.stem, bench.text(path.read_text(encoding="utf-8")))

    status = trc("compile", policy, "-o", tmp_path / "plan.json")

    assert status == 0, capsys.readouterr().err
    plan = read(tmp_path / "plan.json")
    assert verify(plan) == []
    assert (plan.program_hash, plan.tuning_hash) == hashes(plan)
    assert plan.policy == path.stem
    assert plan.provenance.source == path.name


@pytest.mark.parametrize("name", ["demo", "first_n", "mixture"])
def test_the_transitions_of_an_example_read_as_text(name, capsys, golden):
    assert trc("compile", EXAMPLES / f"{name}.route", "--emit", "ir") == 0
    golden(capsys.readouterr().out)


def test_the_plan_goes_to_stdout_where_no_file_is_named(bench, capsys):
    policy = write(bench, "demo", bench.text(example("demo")))

    assert trc("compile", policy) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "demo"


def test_the_python_way_gives_the_same_plan(bench, tmp_path):
    policy = write(bench, "demo", bench.text(example("demo")))
    trc("compile", policy, "-o", tmp_path / "plan.json", "--set", "tau=1.5", "--max-active", "8")

    plan = tokenrouter.compile(policy, sets={"tau": 1.5}, max_active=8)

    other = read(tmp_path / "plan.json")
    assert (plan.program_hash, plan.tuning_hash) == (other.program_hash, other.tuning_hash)
    assert [param.value for param in plan.params] == [1.5]


def test_the_meaning_does_not_depend_on_where_the_models_lie(bench, tmp_path):
    here = write(bench, "demo", bench.text(example("demo")))
    moved = shutil.copytree(bench.root, tmp_path / "moved") / "elsewhere.route"
    moved.write_text("# from somewhere else\n" + here.read_text(encoding="utf-8"), encoding="utf-8")

    one, other = tokenrouter.compile(here), tokenrouter.compile(moved)

    assert one.models[0].use != other.models[0].use
    assert one.program_hash == other.program_hash


def test_a_rule_is_traced_to_its_line(bench):
    plan = tokenrouter.compile(write(bench, "demo", bench.text(example("demo"))))
    lines = example("demo").splitlines()

    for rule in plan.provenance.rules:
        assert re.sub(r"\s+", " ", lines[rule.line - 1].strip()) == re.sub(r"\s+", " ", rule.text)


def test_sizes_are_read_as_people_write_them(bench, tmp_path):
    policy = write(bench, "demo", bench.text(example("demo")))

    for text, value in (
        ("1048576", 1 << 20),
        ("2M", 2 << 20),
        ("1.5MiB", 3 << 19),
        ("1g", 1 << 30),
    ):
        assert trc("compile", policy, "-o", tmp_path / "p.json", "--kv-budget", text) == 0
        assert read(tmp_path / "p.json").memory.budget_bytes == value


def test_pools_that_hold_less_than_the_models_read_are_told(bench, tmp_path, capsys):
    policy, out = write(bench, "demo", bench.text(example("demo"))), tmp_path / "p.json"
    assert trc("compile", policy, "-o", out) == 0
    assert "KV pools" not in capsys.readouterr().err
    models = read(out).models
    token = sum(model.kv_bytes_per_token for model in models)

    assert trc("compile", policy, "-o", out, "--kv-budget", f"{64 * token}") == 0

    [*_, line] = capsys.readouterr().err.splitlines()
    context = min(model.context for model in models)
    assert line == (
        f"{out}: a request may have 65 tokens, prompt and answer together: the KV pools hold no more, "
        f"where the models read {context}; `--kv-budget` makes them larger"
    )


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["--set", "tau"], 2, "trc compile: --set tau: write it as NAME=VALUE"),
        (["--kv-budget", "much"], 2, "much is no size; write it as 512M or 4G"),
        (["--kv-budget", "inf"], 2, "inf is no size; write it as 512M or 4G"),
        (["--kv-budget", "99999999G"], 2, "99999999G is more than any machine has"),
        (["--max-active", "0"], 2, "0 is below 1"),
        (["--kv-budget", "10"], 1, "trc compile: a KV budget of 10 bytes does not hold one page"),
        (["-o", "missing/plan.json"], 1, "trc compile: missing/plan.json: cannot be written"),
    ],
)
def test_wrong_options_are_told_in_a_line(bench, args, status, message, capsys):
    policy = write(bench, "demo", bench.text(example("demo")))

    assert trc("compile", policy, *args) == status
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def compile_error(bench, text, capsys):
    status = trc("compile", write(bench, "bad", text))
    err = capsys.readouterr().err
    assert status == 1
    assert "Traceback" not in err
    return err


def test_a_missing_policy_file_is_told_in_a_line(tmp_path, capsys):
    assert trc("compile", tmp_path / "none.route") == 2
    err = capsys.readouterr().err
    assert "none.route" in err and len(err.splitlines()) == 1


def test_a_missing_model_is_told_with_the_policys_name_for_it(bench, capsys):
    text = 'route 1\nmodel small { use "./nowhere" }\npolicy p { start small at small { otherwise -> commit } }\n'

    err = compile_error(bench, text, capsys)

    assert err.startswith("trc compile: model `small`: ")
    assert len(err.splitlines()) == 1


def test_a_directory_without_config_or_weights_is_told(bench, capsys):
    for name, missing in (("hollow", "config.json"), ("weightless", "model.safetensors")):
        path = save_model(bench.root / name)
        (path / missing).unlink()
        text = f'route 1\nmodel small {{ use "{name}" }}\npolicy p {{ start small at small {{ otherwise -> commit }} }}\n'

        err = compile_error(bench, text, capsys)

        assert err.startswith("trc compile: model `small`: ")
        assert ("config.json" if name == "hollow" else "no weights") in err


def test_int8_weights_stand_in_the_plan(bench, tmp_path):
    text = bench.text(example("always_small")).replace("cost 1", "quantize int8")

    assert trc("compile", write(bench, "int8", text), "-o", tmp_path / "plan.json") == 0
    assert [model.quantize for model in read(tmp_path / "plan.json").models] == ["int8"]


def test_int8_weights_that_ranks_would_share_are_refused_before_a_plan_is_written(bench, capsys):
    text = bench.text(example("always_small"))
    policy = write(bench, "both", text.replace("cost 1", "quantize int8 tensor_parallel 2"))

    for verb in ("check", "compile"):
        assert trc(verb, policy) == 1
        err = capsys.readouterr().err
        assert "[TR1114]: `quantize int8` and `tensor_parallel 2` exclude each other" in err


def test_int8_weights_of_a_model_that_transformers_runs_are_refused(bench, capsys):
    path = save_model(bench.root / "foreign", family="llama")
    config = path / "config.json"
    config.write_text(config.read_text().replace('"silu"', '"gelu"'))
    text = 'route 1\nmodel small { use "foreign" quantize int8 }\npolicy p { start small at small { otherwise -> commit } }\n'

    err = compile_error(bench, text, capsys)

    assert "`quantize int8` is not possible: `llama` runs through transformers" in err


def test_ranks_that_share_a_model_stand_in_the_plan(bench, tmp_path):
    text = bench.text(example("always_small")).replace("cost 1", "tensor_parallel 2")

    assert trc("compile", write(bench, "shared", text), "-o", tmp_path / "plan.json") == 0
    assert read(tmp_path / "plan.json").models[0].tensor_parallel == 2


def test_vocabularies_that_differ_are_refused_with_the_first_id(bench, capsys):
    path = save_model(bench.root / "other")
    file = path / "tokenizer.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    vocab = raw["model"]["vocab"]
    a, b = [
        token for token, id_ in sorted(vocab.items(), key=lambda item: item[1]) if id_ in (20, 21)
    ]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    file.write_text(json.dumps(raw), encoding="utf-8")
    text = bench.text(example("demo")).replace(str(bench.models["large"]), str(path))

    err = compile_error(bench, text, capsys)

    assert "TR4101" in err
    assert "id 20 is" in err


def test_padding_is_no_difference_and_other_ends_are_a_warning(bench, tmp_path, capsys):
    policy = write(bench, "demo", bench.text(example("demo")))

    assert trc("compile", policy, "-o", tmp_path / "plan.json") == 0

    err = capsys.readouterr().err
    assert "TR4102" in err and "TR4101" not in err
    plan = read(tmp_path / "plan.json")
    assert plan.tokenizer.eos_ids == sorted({0, EOS})
    assert plan.models[0].vocab_size < plan.models[1].vocab_size


def test_a_livelock_is_refused_before_any_model_is_looked_for(bench, capsys):
    text = """route 1
model a { use "nowhere/a" }
model b { use "nowhere/b" }
policy p {
  start a
  at a { when entropy > 1 -> retry b  otherwise -> commit }
  at b { when entropy > 1 -> retry a  otherwise -> commit }
}
"""
    err = compile_error(bench, text, capsys)

    assert "TR2201" in err
    assert "nowhere" not in err.split("livelock")[0]


def test_an_enforced_bound_shows_in_the_plan(bench):
    text = bench.text(example("demo")).replace(
        "policy demo {", "policy demo {\n  enforce share(large) <= 40%"
    )
    plan = tokenrouter.compile(write(bench, "demo", text))

    assert [(claim.text, claim.status) for claim in plan.claims] == [
        ("share(large) <= 0.4", "enforced")
    ]
    assert [rule.source for rule in plan.programs[1].rules] == ["policy", "enforced", "fallback"]


def test_the_paths_in_a_plan_hold_from_where_it_lies(bench, tmp_path):
    policy = write(bench, "demo", bench.text(example("demo")))
    assert 'use "small"' in policy.read_text(encoding="utf-8")
    (tmp_path / "deep").mkdir()

    assert trc("compile", policy, "-o", tmp_path / "deep" / "plan.json") == 0

    for model in read(tmp_path / "deep" / "plan.json").models:
        assert not Path(model.use).is_absolute()
        assert (tmp_path / "deep" / model.use / "config.json").is_file()
    assert Path(tokenrouter.compile(policy).models[0].use) == bench.models["small"].resolve()


def test_compiling_tells_what_checking_does_and_in_its_order(bench, capsys):
    text = bench.text(example("always_small")).replace(
        "route 1\n", "route 1\nvar idle: count = 0\n", 1
    )
    # What margin may be hangs on no vocabulary, which compiling looks at only where the rules are right.
    text = text.replace("otherwise -> commit", "when margin < 0 -> stop otherwise -> commit", 1)
    policy = write(bench, "order", text + "param last: nats = 0\n")
    told = []
    for verb in ("check", "compile"):
        assert trc(verb, policy) == 1
        told.append([line for line in capsys.readouterr().err.splitlines() if "[TR" in line])

    assert [line.partition("[")[2][:6] for line in told[0]] == ["TR1301", "TR2301", "TR1301"]
    assert told[0] == told[1]
