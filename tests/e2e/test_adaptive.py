"""Windows that adapt: tables are solved from what the run shows and swapped while requests run, and no token changes."""

from dataclasses import replace

from tests.e2e.compare import difference, requests, traces
from tests.e2e.serving import Conditions, serve
from tokenrouter.runtime.adapt import Adapter
from tokenrouter.runtime.gate import infeasible_count
from tokenrouter.runtime.reference import Reference

POLICY = """route 1

model small { use "small" }
model large { use "large" }

param p: prob = 10% in [0%, 100%]

policy shifting {
  start small
  at small {
    when chance < p -> retry large
    otherwise       -> commit
  }
  at large {
    otherwise -> commit then small
  }
}
"""
BEFORE, AFTER = 0.05, 0.8  # of the hand-offs, in the first and second half of the requests


def test_tables_that_are_swapped_while_requests_run_change_no_token(
    compiled, float64, monkeypatch, tmp_path
):
    (tmp_path / "shifting.route").write_text(POLICY)
    plan = compiled(tmp_path / "shifting.route")
    half = [replace(r, params={"p": BEFORE}) for r in requests(90, seed=8)]
    wanted = half + [replace(r, params={"p": AFTER}) for r in requests(90, seed=9)]
    running = []  # the requests and the table at each swap
    adopt = Adapter._adopt

    def noting(adapter, *args):
        adopt(adapter, *args)
        running.append((len(book_of(adapter).entries), adapter.status.table))

    def book_of(adapter):
        return adapter._set_windows.__self__

    monkeypatch.setattr(Adapter, "_adopt", noting)
    conditions = Conditions(order=None, windows=8, mode="adaptive", deaths=2)
    served = serve(plan, wanted, conditions, float64(plan.models))

    expected = traces(Reference(plan, models=float64(plan.models)), wanted)
    for at, (trace, completion) in enumerate(zip(expected, served.completions, strict=True)):
        assert not (found := difference(trace, completion)), f"request {at}: {found}"
    status = served.engine.adapter.status
    assert status.swaps == len(running) >= 2
    assert all(n > 0 and infeasible_count(table) is None for n, table in running)
    assert status.source == "live"
    assert [s.gate.gate.windows for s in served.engine.subservers] == status.table
