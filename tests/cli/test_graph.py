"""`trc graph` of a policy file: no plan and no model files."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tokenrouter import cli

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.route"))
TWO = """route 1
model small { use "s" }
model large { use "l" }
policy first {
  start small
  at small {
    when class is number -> borrow large for 2
    when token is "x"    -> stop
    otherwise            -> commit
  }
}
policy second {
  start mix { small: 0.5  large: 0.5 }
  at any { otherwise -> commit then mix { small: 0.5  large: 0.5 } }
}
"""


@pytest.fixture
def two(tmp_path):
    path = tmp_path / "two.route"
    path.write_text(TWO, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_policy_of_a_file_is_an_svg_with_its_models_and_rules(path, capsys):
    assert cli.main(["graph", str(path), "--format", "json"]) == 0

    (drawn,) = json.loads(capsys.readouterr().out)
    root = ET.fromstring(drawn["svg"])
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert f"policy {drawn['policy']}" in texts
    assert any("rule 0: " in text for text in texts)


def test_one_policy_of_several_is_drawn_by_name(two, capsys):
    assert cli.main(["graph", two, "--policy", "first"]) == 0

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[4:] == [
        'n_start(["start"])',
        'n_m_small["small"]',
        'n_m_large["large"]',
        'n_end(["end"])',
        "n_start --> n_m_small",
        'n_m_small -.->|"rule 0: class is number -> borrow large for 2"| n_m_large',
        'n_m_large -.->|"back"| n_m_small',
        'n_m_small -->|"rule 1: token is #34;x#34; -> stop"| n_end',
        'n_m_small -->|"rule 2: otherwise -> commit"| n_m_small',
    ]


def test_all_policies_are_told_by_name_and_of_several_one_must_be_named(two, capsys):
    assert cli.main(["graph", two, "--format", "json"]) == 0
    assert [drawn["policy"] for drawn in json.loads(capsys.readouterr().out)] == ["first", "second"]

    assert cli.main(["graph", two]) == 1
    assert "`first`, `second`" in capsys.readouterr().err


def test_rules_that_enforce_wrote_say_so(capsys):
    (path,) = (p for p in EXAMPLES if p.stem == "guarded")
    assert cli.main(["graph", str(path)]) == 0
    assert "(enforced)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["plan.json", "--policy", "p"], "`--policy` goes with a policy file"),
        (["plan.json", "--format", "json"], "`--format json` goes with a policy file"),
        (["p.route", "--tasks", "small"], "`--tasks` goes with a plan"),
    ],
)
def test_what_does_not_go_together_is_one_line(args, told, capsys):
    assert cli.main(["graph", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_policy_with_mistakes_is_not_drawn_and_its_mistakes_are_told(tmp_path, capsys):
    path = tmp_path / "p.route"
    path.write_text(TWO.replace("start small", "start smal"), encoding="utf-8")

    assert cli.main(["graph", str(path), "--format", "json"]) == 1

    out, err = capsys.readouterr()
    assert out == "" and "`smal`" in err
