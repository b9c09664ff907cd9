"""What is kept of models for the next check: it is what the files say, or it is not used."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from tests.factories import EOS, save_model
from tests.models.ggufs import write_model
from tokenrouter import models
from tokenrouter.cli import main
from tokenrouter.compiler import kept
from tokenrouter.compiler.facts import Outline
from tokenrouter.compiler.gather import read
from tokenrouter.models import Located, ModelError, locate
from tokenrouter.models.dummy import SHAPES

HEAVY = ("torch", "numpy", "gguf", "scipy", "networkx", "transformers", "tokenizers", "jinja2")
POLICY = 'route 1\nmodel a {{ use "{}" }}\npolicy p {{ start a at a {{ otherwise -> commit }} }}\n'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, which keeps what it finds in files of this moment too."""
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "YOUNG_S", -1.0)
    return tmp_path / "cache" / "facts"


def directory(path):
    return Located("directory", save_model(path))


def gguf(path):
    return Located("gguf", write_model(save_model(path), path / "model.gguf"))


def student(path):
    """A directory without a tokenizer, which is its teacher's."""
    own = save_model(path / "own", layers=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (own / name).unlink()
    return Located("student", own, gguf(path / "teacher").path)


def dummy(path):
    return Located("dummy", save_model(path), seed=3)


def shape(path):
    return Located("dummy", Path("smollm2-135m"))


KINDS = [directory, gguf, student, dummy, shape]


def told(facts):
    """Return everything that facts say, the table too."""
    table = facts.vocabulary
    own = (table.size, table.digest, table.tokens, table.special_ids)
    return facts.fingerprint, asdict(facts.config), facts.template, facts.parameters, own


def is_kept(located):
    """Return whether a look at a model takes its entry, having seen that the facts are those of the files."""
    facts = kept.facts_at(located)
    assert told(facts) == told(read(located))
    return isinstance(facts.vocabulary, Outline)


@pytest.mark.parametrize("made", KINDS)
def test_a_second_look_takes_what_the_first_one_kept(made, tmp_path):
    located = made(tmp_path / "model")

    assert [is_kept(located) for _ in range(3)] == [False, True, True]


def test_models_have_an_entry_each(cache, tmp_path):
    use = str(save_model(tmp_path / "model"))
    uses = [use, f"dummy:{use}", f"dummy:{use}?seed=1", *(f"dummy:{name}" for name in SHAPES)]

    for _ in range(2):
        prints = [kept.facts_of(each, Path()).fingerprint for each in uses]
        assert len(set(prints)) == len(uses) == len(list(cache.iterdir()))


def test_one_model_by_many_ways_has_one_entry(cache, tmp_path, monkeypatch):
    save_model(tmp_path / "model")
    (tmp_path / "link").symlink_to("model")
    monkeypatch.chdir(tmp_path)

    for use in ("model", "./model", "link", str(tmp_path / "model")):
        kept.facts_of(use, Path())

    assert len(list(cache.iterdir())) == 1


def edit(name, **changes):
    def change(located):
        file = located.path / name
        raw = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.write_text(json.dumps(raw | changes), encoding="utf-8")

    return change


def in_place(get, old, new):
    """Write other bytes over some of a file's, and give it the times that it had."""

    def change(located):
        file = get(located)
        at, data = file.stat(), file.read_bytes()
        assert old in data and len(old) == len(new)
        with file.open("r+b") as opened:
            opened.write(data.replace(old, new))
        os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (at.st_size, at.st_mtime_ns)

    return change


def replaced(get, old, new):
    """Put another file of the same size and times in a file's place."""

    def change(located):
        file = get(located)
        at = file.stat()
        other = file.with_name("other")
        other.write_bytes(file.read_bytes().replace(old, new))
        os.utime(other, ns=(at.st_atime_ns, at.st_mtime_ns))
        os.replace(other, file)

    return change


def another_shard(located):
    shutil.copy(located.path / "model.safetensors", located.path / "model-2.safetensors")


def without_generation_config(located):
    (located.path / "generation_config.json").unlink()


def a_template_of_its_own(located):
    (located.path / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")


def itself(located):
    return located.path


def its_teacher(located):
    return located.teacher


def its_tokenizer(located):
    return located.path / "tokenizer.json"


CHANGES = {
    "config edited": (directory, edit("config.json", rms_norm_eps=0.5)),
    "other ends": (directory, edit("generation_config.json", eos_token_id=[EOS, 9])),
    "ends gone": (directory, without_generation_config),
    "tokenizer config": (directory, edit("tokenizer_config.json", chat_template="{{ 1 }}")),
    "template": (directory, a_template_of_its_own),
    "tokenizer in place": (directory, in_place(its_tokenizer, b"<|pad|>", b"<|pbd|>")),
    "tokenizer replaced": (directory, replaced(its_tokenizer, b"<|pad|>", b"<|pbd|>")),
    "another shard": (directory, another_shard),
    "gguf in place": (gguf, in_place(itself, b"<|pad|>", b"<|pbd|>")),
    "gguf replaced": (gguf, replaced(itself, b"<|pad|>", b"<|pbd|>")),
    "teacher in place": (student, in_place(its_teacher, b"<|pad|>", b"<|pbd|>")),
    "student's config": (student, edit("config.json", rms_norm_eps=0.5)),
    "dummy's config": (dummy, edit("config.json", rms_norm_eps=0.5)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_model_is_read_anew(what, tmp_path):
    made, change = CHANGES[what]
    located = made(tmp_path / "model")
    if located.path.is_dir():
        edit("generation_config.json", eos_token_id=[EOS, 4])(located)
    before = kept.facts_at(located)
    assert is_kept(located)

    change(located)

    assert [is_kept(located) for _ in range(2)] == [False, True]
    assert told(kept.facts_at(located)) != told(before)


def test_a_model_that_is_gone_is_not_there_whatever_was_kept(tmp_path):
    path = save_model(tmp_path / "model")
    kept.facts_of(str(path), Path())
    (path / "model.safetensors").unlink()

    with pytest.raises(ModelError, match="has no weights"):
        kept.facts_of(str(path), Path())


def test_what_other_code_read_is_not_used(tmp_path, monkeypatch):
    located = directory(tmp_path / "model")
    code = shutil.copytree(models.__path__[0], tmp_path / "code")
    monkeypatch.setattr(models, "__path__", [str(code)])
    assert [is_kept(located) for _ in range(2)] == [False, True]

    with (code / "stops.py").open("a", encoding="utf-8") as file:
        file.write("\n")

    assert [is_kept(located) for _ in range(2)] == [False, True]


def whole(data):
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


DAMAGES = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "no head": lambda data: data.partition(b"\n")[2],
    "one digit": lambda data: data.replace(b'"parameters":', b'"parameters":1'),
    "zeros": lambda data: bytes(len(data)),
    "other json": lambda data: whole(b"[]"),
    "another form": lambda data: whole(b'{"stamp": "x"}'),
    "no json": lambda data: whole(b"\xff{"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_anew(damage, tmp_path, cache):
    located = directory(tmp_path / "model")
    kept.facts_at(located)
    [entry] = cache.iterdir()
    entry.write_bytes(DAMAGES[damage](entry.read_bytes()))

    assert [is_kept(located) for _ in range(2)] == [False, True]


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path, monkeypatch, cache):
    located = directory(tmp_path / "model")
    monkeypatch.setenv("TOKENROUTER_CACHE", str(located.path / "config.json"))
    assert not any(is_kept(located) for _ in range(2))

    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    kept.facts_at(located)
    [entry] = cache.iterdir()
    entry.unlink()
    entry.mkdir()
    assert not any(is_kept(located) for _ in range(2))
    assert list(cache.iterdir()) == [entry]


def test_a_model_written_a_moment_ago_is_not_kept(tmp_path, monkeypatch, cache):
    monkeypatch.setattr(kept, "YOUNG_S", 3600.0)
    located = directory(tmp_path / "model")

    assert not is_kept(located) and not cache.exists()


def test_a_model_that_changes_while_it_is_read_is_not_kept(tmp_path, monkeypatch, cache):
    located = directory(tmp_path / "model")

    def slowly(located):
        facts = read(located)
        edit("config.json", rms_norm_eps=0.5)(located)
        return facts

    monkeypatch.setattr(kept, "read", slowly)
    kept.facts_at(located)

    assert not cache.exists()


def test_what_json_cannot_say_is_not_kept(tmp_path, cache):
    located = directory(tmp_path / "model")
    edit("config.json", rope_theta=float("inf"), rope_parameters=None)(located)

    assert not any(is_kept(located) for _ in range(2)) and not cache.exists()


def test_the_oldest_entries_give_way(tmp_path, monkeypatch, cache):
    monkeypatch.setattr(kept, "MOST", 3)
    for at, name in enumerate(list(SHAPES)[:5]):
        kept.facts_of(f"dummy:{name}", Path())
        newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, ns=(at, at))

    assert sorted(path.stat().st_mtime_ns for path in cache.iterdir()) == [2, 3, 4]


def run(code, *args):
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_every_file_that_is_read_is_looked_at(tmp_path):
    code = """
import json, sys
from pathlib import Path
from tokenrouter.compiler.gather import read
from tokenrouter.compiler.kept import files
from tokenrouter.models import locate
seen = set()
sys.addaudithook(lambda name, args: seen.add(str(args[0])) if name == "open" else None)
located = locate(sys.argv[1], Path())
read(located)
print(json.dumps([sorted(seen), sorted(map(str, files(located)))]))
"""
    for located in (directory(tmp_path / "a"), gguf(tmp_path / "b")):
        if located.kind == "directory":
            edit("generation_config.json", eos_token_id=[EOS, 4])(located)
            a_template_of_its_own(located)
        opened, looked_at = run(code, str(located.path))

        assert {path for path in opened if path.startswith(str(tmp_path))} == set(looked_at)


def test_processes_that_write_and_read_at_once_find_whole_entries(tmp_path, cache):
    code = """
import json, sys
from pathlib import Path
from tokenrouter.compiler import kept
kept.YOUNG_S = -1.0
use, entry = sys.argv[1], Path(sys.argv[2])
found = set()
for at in range(60):
    if at % 3 == 0:
        entry.unlink(missing_ok=True)
    found.add(kept.facts_of(use, Path()).fingerprint)
print(json.dumps(sorted(found)))
"""
    use = str(save_model(tmp_path / "model"))
    expected = kept.facts_of(use, Path()).fingerprint
    [entry] = cache.iterdir()
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(run, [code] * 3, [use] * 3, [str(entry)] * 3))

    assert found == [[expected]] * 3
    assert kept._load(entry) is not None and list(cache.iterdir()) == [entry]


def check(path, *, warm):
    """Return what a check loads, and which of a model's files it opens."""
    code = """
import json, sys
from tokenrouter import cli
if sys.argv[2] == "cold":
    from tokenrouter.compiler import kept
    kept.YOUNG_S = -1.0
opened = []
sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
assert cli.main(["check", sys.argv[1]]) == 0
print(json.dumps([sorted({name.split(".")[0] for name in sys.modules}), opened]))
"""
    loaded, opened = run(code, str(path), "warm" if warm else "cold")
    return set(loaded) & set(HEAVY), Counter(Path(name).name for name in opened)


@pytest.mark.parametrize("made", [directory, gguf])
def test_a_check_loads_nothing_heavy_and_opens_no_model_that_it_knows(made, tmp_path):
    located = made(tmp_path / "model")
    policy = tmp_path / "p.route"
    policy.write_text(POLICY.format(located.path), encoding="utf-8")
    model = {path.name for path in kept.files(located) if path.exists()}

    heavy, opened = check(policy, warm=False)
    assert not heavy and model <= set(opened)
    heavy, opened = check(policy, warm=True)
    assert not heavy and not model & set(opened)


def test_the_fingerprint_in_a_plan_is_never_a_kept_one(tmp_path, cache):
    path = save_model(tmp_path / "model")
    policy, plan = tmp_path / "p.route", tmp_path / "plan.json"
    policy.write_text(POLICY.format(path), encoding="utf-8")
    real = kept.facts_of(str(path), Path()).fingerprint
    [entry] = cache.iterdir()
    forged = msgspec.structs.replace(kept._load(entry), fingerprint="0" * 64)
    kept._keep(entry, forged)
    assert kept.facts_of(str(path), Path()).fingerprint == "0" * 64

    assert main(["compile", str(policy), "-o", str(plan)]) == 0

    assert json.loads(plan.read_bytes())["models"][0]["fingerprint"] == real


def test_a_damaged_model_is_one_line_of_compile_and_nothing_to_check(tmp_path, capsys):
    path = save_model(tmp_path / "model")
    edit("config.json", num_hidden_layers="several")(locate(str(path), Path()))
    policy = tmp_path / "p.route"
    policy.write_text(POLICY.format(path), encoding="utf-8")

    assert main(["check", str(policy)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compile", str(policy), "-o", str(tmp_path / "plan.json")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("trc compile: model `a`: the files of `") and err.count("\n") == 1


@pytest.mark.parametrize("use", ["demo:small", "demo:medium", "~nobody-of-that-name/model"])
def test_a_model_that_is_not_there_is_nothing_to_check(use, tmp_path, capsys):
    policy = tmp_path / "p.route"
    policy.write_text(POLICY.format(use), encoding="utf-8")

    assert main(["check", str(policy)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compile", str(policy), "-o", str(tmp_path / "plan.json")]) == 1
    assert capsys.readouterr().err.startswith("trc compile: model `a`: ")
