"""docs/compiler.md names every pass in order, and every code of the compiler."""

import re
from pathlib import Path

from tokenrouter.compiler import pipeline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")


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
