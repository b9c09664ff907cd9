"""docs/throughput-model.md: its fields are those of the code, and its figures come out again."""

import re
from pathlib import Path

import pytest

from tokenrouter.throughput.answer import answer
from tokenrouter.throughput.spec import Spec, decode

PAGE = Path(__file__).parents[2].joinpath("docs/throughput-model.md").read_text(encoding="utf-8")


def test_the_page_names_every_field_of_a_specification():
    section = PAGE.split("## One specification")[1].split("With `--json`")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]

    assert named == list(Spec.__struct_fields__)


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
def test_the_table_of_gaps_comes_out_again(n):
    row = re.search(
        rf"^\| {n} \| ([\d, ]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \|$", PAGE, re.MULTILINE
    )
    spec = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1].replace('"n": 3', f'"n": {n}')
    windows = [int(b) for b in row[1].split(",")]

    best = answer(decode(spec.replace("null", str(windows)).encode()))
    plain = answer(decode(spec.replace("null", "[1, 1]").encode()))

    assert best.solution.tokens_per_s == pytest.approx(float(row[2]), abs=0.051)
    assert plain.solution.tokens_per_s == pytest.approx(float(row[3]), abs=0.051)
    assert 100 * (1 - best.optimality_gap) == pytest.approx(float(row[4]), abs=0.051)
    if n <= 4:
        assert answer(decode(spec.encode())).solution.windows == windows
