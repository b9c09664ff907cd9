"""docs/plan.md tells the fields as the structs have them, each with a meaning."""

import re
from pathlib import Path

import msgspec
import pytest

from tokenrouter.plan import docs, structs
from tokenrouter.plan.coverage import COVERED, OUTSIDE, WHOLE

PAGE = (Path(__file__).parents[2] / "docs/plan.md").read_text(encoding="utf-8")


def test_the_tables_are_made_from_the_structs():
    assert docs.renew(PAGE) == PAGE


@pytest.mark.parametrize("kind", [*COVERED, *WHOLE, *OUTSIDE], ids=lambda kind: kind.__name__)
def test_each_struct_has_a_table_with_its_fields_in_order(kind):
    block = re.split(rf"### {kind.__name__}\b", PAGE)[1].split("### ")[0]
    rows = [line.split(" | ") for line in block.splitlines() if line.startswith("| `")]

    assert [row[0].strip("|` ") for row in rows] == [f.name for f in msgspec.structs.fields(kind)]
    assert all(row[-1].removesuffix("|").strip() for row in rows)


def test_every_struct_can_be_imported_from_one_place():
    assert {k.__name__ for k in (*COVERED, *WHOLE, *OUTSIDE)} <= set(structs.__all__)
