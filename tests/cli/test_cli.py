"""`trc`: verbs, help, and one clear line for whatever goes wrong."""

import subprocess
import sys
import types

import pytest

import tokenrouter
from tokenrouter import cli
from tokenrouter.errors import TokenRouterError


def test_help_names_every_verb_with_what_it_does(capsys):
    assert cli.main(["--help"]) == 0

    text = capsys.readouterr().out
    for verb in cli.verbs():
        module = cli.load(verb)
        assert verb == module.NAME
        assert f"  {verb:<11} {module.HELP}" in text


def test_no_verb_is_wrong_usage_and_says_what_there_is(capsys):
    assert cli.main([]) == 2
    assert "usage: trc VERB" in capsys.readouterr().err


def test_an_unknown_verb_is_wrong_usage(capsys):
    assert cli.main(["complie"]) == 2
    assert "no verb `complie`; there are" in capsys.readouterr().err


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"trc {tokenrouter.__version__}\n"


def test_wrong_arguments_are_wrong_usage(capsys):
    assert cli.main(["explain"]) == 2
    assert "usage: trc explain" in capsys.readouterr().err


def test_the_help_of_a_verb_is_no_failure(capsys):
    assert cli.main(["explain", "--help"]) == 0
    assert "usage: trc explain" in capsys.readouterr().out


def verb(run):
    return types.SimpleNamespace(NAME="made", HELP="made", configure=lambda parser: None, run=run)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (TokenRouterError("plan.json: not a plan"), 1, "trc made: plan.json: not a plan\n"),
        (FileNotFoundError(2, "No such file", "x.route"), 1, "trc made: x.route: No such file\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_of_the_world_is_one_line(monkeypatch, capsys, error, status, line):
    def run(args):
        raise error

    monkeypatch.setattr(cli, "verbs", lambda: ["made"])
    monkeypatch.setattr(cli, "load", lambda name: verb(run))

    assert cli.main(["made"]) == status
    assert capsys.readouterr().err == line


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    def run(args):
        raise AssertionError("ours")

    monkeypatch.setattr(cli, "verbs", lambda: ["made"])
    monkeypatch.setattr(cli, "load", lambda name: verb(run))

    with pytest.raises(AssertionError, match="ours"):
        cli.main(["made"])


def test_a_defect_of_ours_is_no_status_of_a_policy(monkeypatch, capsys):
    def run(args):
        raise AssertionError("ours")

    monkeypatch.setattr(cli, "verbs", lambda: ["made"])
    monkeypatch.setattr(cli, "load", lambda name: verb(run))
    monkeypatch.setattr("sys.argv", ["trc", "made"])

    assert cli.main() == 2
    err = capsys.readouterr().err
    assert "AssertionError: ours" in err and "defect of trc" in err


def test_importing_the_package_and_asking_for_help_loads_nothing_heavy():
    code = (
        "import sys, tokenrouter; from tokenrouter import cli; cli.main(['--help']);"
        "print([m for m in ('torch', 'transformers', 'lark', 'numpy', 'scipy', 'networkx', 'msgspec', 'fastapi')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[]\n"


def test_the_package_has_no_attribute_that_it_does_not_name():
    with pytest.raises(AttributeError, match="has no attribute 'compiel'"):
        tokenrouter.compiel  # noqa: B018


@pytest.mark.parametrize(
    "args",
    [
        ("check", "no.route"), ("fmt", "no.route"), ("fmt", "x.py"), ("compile", "no.route"), ("test", "no.route"),
        ("graph", "no.route"), ("graph", "no.json"), ("explain", "no.json"), ("explain", "TR9999"),
        ("decompile", "no.json"), ("diff", "no.json", "no.json"), ("head", "show", "no.safetensors"),
        ("simulate", "no.json", "--rate", "1"), ("profile", "no.json", "-o", "profile.json"),
        ("compile", "latin.route"), ("decompile", "latin.route"), ("head", "show", "latin.route"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_read_is_status_2_and_one_line(args, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.route").write_bytes(b"\xff\xfe")

    assert cli.main(list(args)) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"trc {args[0]}: ") and err.count("\n") == 1
