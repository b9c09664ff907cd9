"""docs/compiler.md names every pass in order, and every code of the compiler; docs/analysis.md every law, each of which is seen at work."""

import re
from pathlib import Path

import pytest

from tokenrouter.commands.check import everything
from tokenrouter.compiler import laws, pipeline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")

LAWS = (ROOT / "docs/analysis.md").read_text(encoding="utf-8").partition("| law |")[2]
ROWS = re.findall(r"^\| (.+?) \| `([^`|]+)` \| `([^`|]+)` \|$", LAWS, re.MULTILINE)
POLICY = """route 1
model small { use "org/small" }
model large { use "org/large" }
policy p {
  start small
  at small { when %s -> borrow large for 1 otherwise -> commit }
}
"""


def test_the_table_of_passes_is_the_pipeline():
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([TR\d ]+) \|$", PAGE, re.MULTILINE)

    assert [name for name, _ in rows] == [step.__name__ for step in pipeline.PASSES]
    for name, codes in rows:
        source = (ROOT / f"tokenrouter/compiler/passes/{name}.py").read_text(encoding="utf-8")
        assert sorted(set(re.findall(r'"(TR\d{4})"', source))) == codes.split(), name


def test_every_pass_is_a_file_of_its_name():
    files = {path.stem for path in (ROOT / "tokenrouter/compiler/passes").glob("*.py")}

    assert files - {"__init__"} == {step.__name__ for step in pipeline.PASSES}


def test_the_codes_of_the_model_checks_are_named():
    source = (ROOT / "tokenrouter/compiler/models.py").read_text(encoding="utf-8")

    assert set(re.findall(r'"(TR\d{4})"', source)) <= set(re.findall(r"TR\d{4}", PAGE))


@pytest.mark.parametrize(("law", "never", "may"), ROWS)
def test_a_law_of_the_page_makes_its_condition_dead_and_its_neighbour_not(law, never, may):
    [told] = everything(POLICY % never, "page.route").diagnostics

    assert told.code == "TR2301", law
    assert everything(POLICY % may, "page.route").diagnostics == (), law


def test_the_page_of_laws_speaks_of_every_signal_that_a_law_ties_to_another():
    assert len(ROWS) == LAWS.partition("\n\n")[0].count("\n") - 1
    said = " ".join(" ".join(row) for row in ROWS)

    tied = laws.TIED | laws.BENT | {"maxprob", "entropy_norm", "chance"}
    assert [name for name in sorted(tied) if name not in said] == []
