"""`trc windows`."""

import json

import pytest

from tests.throughput.test_spec import GOOD
from tokenrouter import cli


@pytest.fixture
def told(tmp_path, capsys):
    def run(*options, **changes):
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(GOOD | changes))
        status = cli.main(["windows", "--spec", str(path), *options])
        return status, *capsys.readouterr()

    return run


def test_json_holds_every_figure(told):
    status, out, _ = told("--json")

    assert status == 0
    solved = json.loads(out)
    assert solved["tokens_per_s"] == pytest.approx(207.95, abs=0.01)
    assert (solved["solver"], solved["states"], solved["stderr"]) == ("exact", 14, 0)
    assert solved["windows"] == [1, 3]
    assert solved["optimality_gap"] == pytest.approx(0.0029, abs=1e-4)
    assert [set(model) for model in solved["per_model"]] == [
        {"utilisation", "mean_batch", "admission_delay_ms"}
    ] * 2


def test_without_windows_the_best_are_searched(told):
    _, out, _ = told("--json", n=3, windows=None)

    assert json.loads(out)["windows"] == [1, 2]


def test_people_get_a_page(told):
    status, out, _ = told()

    assert status == 0
    assert out.startswith(
        "208.0 tokens/s with 4 active, 52.0 for each (exact, 14 states)\n99.7 % of"
    )
    assert "    1       3    64 %       3.19           9.6 ms\n" in out


def test_a_bound_that_is_missed_is_said(told):
    assert "is not reached" in told(objective={"speed_at_least": 60})[1]
    assert "is not reached" not in told(objective={"speed_at_least": 50})[1]
    assert json.loads(told("--json", objective={"speed_at_least": 60})[1])["objective_met"] is False


def test_a_wrong_specification_is_one_line(told):
    status, out, err = told(n=0)

    assert (status, out) == (1, "")
    assert err.startswith("trc windows: ") and err.count("\n") == 1
    assert err.endswith("spec.json: `n` is 0; at least 1 request must be active\n")
