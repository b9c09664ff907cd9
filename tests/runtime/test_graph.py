"""The task graph is what runs: a plan edited by hand serves as it was edited, with no other change."""

import msgspec
import pytest

from tests.runtime.toy import borrowing, greedy, ping_pong, prompts, toys
from tokenrouter.plan import structs as s
from tokenrouter.plan.verify import verify
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.graph import GraphError, TaskGraph

SAMPLING = greedy(ignore_eos=True)


def edit(plan, model, edges=(), tasks=()):
    """The plan with edges redirected, and tasks replaced by id, in one model's graph."""
    graph = plan.subservers[model]
    moved = {(source, label): target for source, label, target in edges}
    new = [
        msgspec.structs.replace(edge, target=moved.get((edge.source, edge.label), edge.target))
        for edge in graph.edges
    ]
    by_id = {task.id: task for task in tasks}
    graph = s.Subserver(tasks=[by_id.get(task.id, task) for task in graph.tasks], edges=new)
    graphs = [graph if at == model else other for at, other in enumerate(plan.subservers)]
    return msgspec.structs.replace(plan, subservers=graphs)


def write(plan):
    engine = Engine(plan, models=toys(plan))
    completions = engine.generate(prompts(6), SAMPLING)
    engine.check_integrity()
    return [list(zip(c.ids, c.models, strict=True)) for c in completions], engine


def test_without_the_way_to_the_rules_the_first_model_writes_everything():
    edited = edit(ping_pong(), 0, [("sample", "own", "commit")])

    written, _ = write(edited)

    assert {model for tokens in written for _, model in tokens} == {0}


def test_without_signals_only_otherwise_can_fire():
    edited = edit(ping_pong(), 0, [("sample", "own", "route")])

    written, _ = write(edited)

    assert {model for tokens in written for _, model in tokens} == {0}


def test_a_borrowed_step_that_is_not_watched_stays_to_the_end():
    plan = borrowing(most=4, until=0.0)

    watched, _ = write(plan)
    edited, _ = write(edit(plan, 1, [("sample", "borrowed", "count_down")]))

    def runs(written):
        models = "".join(str(model) for tokens in written for _, model in tokens)
        return max(map(len, models.split("0")))

    assert runs(edited) >= 4
    assert runs(watched) < runs(edited)


def test_without_park_a_request_that_leaves_gives_its_pages_up_and_writes_the_same():
    plan = ping_pong()
    edited = edit(plan, 0, [("route", "drop", "send"), ("commit", "leave", "send")])

    same, kept = write(plan)
    written, given_up = write(edited)

    assert written == same
    assert given_up.runners[0].n_read > kept.runners[0].n_read


def test_an_eager_admit_reads_the_prompt_where_nobody_asked_yet():
    def read_before_any_handoff(plan):
        engine = Engine(plan, models=toys(plan))
        while not all(engine.book.up):
            engine.step()
        engine.submit([3] * 40, SAMPLING)
        for _ in range(6):
            for channel in engine.queues.waiting():
                if channel[0] == -1:  # from the front end only
                    engine.do(engine.events()[engine.queues.waiting().index(channel)])
        engine.subservers[1].step()
        return engine.runners[1].n_read

    plan = ping_pong()

    assert read_before_any_handoff(plan) == 0
    assert (
        read_before_any_handoff(edit(plan, 1, tasks=[s.Admit(id="admit", prefill="eager")])) == 39
    )


def test_a_step_runs_every_task_after_all_that_lead_to_it():
    order = TaskGraph(borrowing(until=1.0).subservers[1]).order

    for before, after in [("sample", "watch"), ("count_down", "commit"), ("route", "park")]:
        assert order.index(before) < order.index(after)
    assert "gate" not in order and order[0] == "extend"


def test_a_graph_that_loops_within_a_step_is_refused():
    plan = edit(ping_pong(), 0, [("commit", "stay", "sample")])

    with pytest.raises(GraphError, match="loops within a step"):
        Engine(plan, models=toys(plan))


def test_the_toy_plans_hold_together():
    assert verify(ping_pong()) == verify(borrowing(until=1.0)) == []
