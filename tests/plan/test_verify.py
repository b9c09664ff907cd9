"""A plan that does not hold together is refused, and the reason names the place."""

import msgspec
import pytest

from tokenrouter.plan import structs as s
from tokenrouter.plan.verify import verify

replace = msgspec.structs.replace


def put(value, path, new):
    """Return a copy of a struct or list with one place changed; `path` is as in `programs.0.rules`."""
    step, _, rest = path.partition(".")
    if isinstance(value, list):
        copy = list(value)
        copy[int(step)] = put(copy[int(step)], rest, new) if rest else new
        return copy
    return replace(value, **{step: put(getattr(value, step), rest, new) if rest else new})


def test_the_plan_that_uses_every_part_holds_together(plan):
    assert verify(plan) == []


@pytest.mark.parametrize(
    ("path", "new", "problem"),
    [
        ("models", [], "`models` is empty"),
        ("programs", [], "`programs` has 0 entries for 2 models"),
        ("models.1.name", "small", "`models` holds `small` twice"),
        ("params.0.name", "", "`params` holds what is no name: ''"),
        ("models.0.name", "/../../small", "`models` holds what is no name: '/../../small'"),
        ("policy", 'x"""\nimport os\n"""', "`policy` holds what is no name: "),
        ("params.0.value", 5.0, "param `tau` is 5.0, outside its bounds"),
        ("vars.0.value", float("nan"), "var `turns` is not finite"),
        ("tokenizer.template_from", 2, "`tokenizer.template_from` names no model: 2"),
        ("tokenizer.eos_ids", [], "`tokenizer.eos_ids` lacks [2] of model `small`"),
        ("tokenizer.eos_ids", [3, 2], "`tokenizer.eos_ids` is not ascending"),
        ("tokenizer.eos_ids", [2, 60], "outside the vocabulary of 60"),
        ("models.0.vocab_size", 59, "model `small` has 59 rows for a vocabulary of 60"),
        ("models.0.context", 0, "model `small` has a size out of range"),
        ("windows.max_active", 4, "the windows of `small` have 3 entries for 4"),
        ("windows.table.0.0", 0, "a window of `small` is below 1"),
        ("windows.table.0.1", 2, "could stop for ever with 2 active requests"),
        ("windows.max_wait_ms", 0.0, "`windows.max_wait_ms` is not a positive time"),
        ("estimates.tokens_per_s", [1.0], "`estimates.tokens_per_s` has 1 entries for 3"),
        ("estimates.start", [1.0], "`estimates.start` has 1 entries for 2 rules"),
        ("estimates.loads.0.n", 4, "an entry that fits no plan of 3: N = 4"),
        ("windows.system.entry", [1.0], "other lists than 2 stations ask for"),
        ("windows.system.p.0", [1.0], "other lists than 2 stations ask for"),
        ("windows.system.model_of.0", 2, "`windows.system.model_of` names no model of 2"),
        ("windows.system.step_ms.0", [6.0], "does not give 2 models and 3 sizes of batches"),
        ("windows.system.step_ms.0.1", 0.0, "holds a number that is none of"),
        ("windows.system.busy.0.rates", [0.5], "`windows.system.busy` has a wrong entry: [0, 1]"),
        ("windows.system.first_p", [], "other first ways than 2 models and 2 stations"),
        ("windows.system.first_c", [[1.0, 0.0]], "other first ways than 2 models and 2 stations"),
        ("windows.system.first_p.1", [1.0], "other first ways than 2 models and 2 stations"),
        ("windows.system.first_p.0.1", -0.5, "holds a number that is none of"),
        ("windows.system.in_turn", True, "models that step in turn never are"),
        ("windows.system.after_ms", [[6.0] * 3] * 2, "and these do not"),
        (
            "windows.system.after_ms",
            [[6.0] * 3],
            "`windows.system.after_ms` does not give 2 models",
        ),
        ("windows.system.after_ms", [[6.0] * 3, [0.0] * 3], "holds a number that is none of"),
        ("windows.optimality_gap", 7.0, "`windows.optimality_gap` is 7, no share of a throughput"),
        ("memory.capacity_tokens", 250, "no positive multiple of 16"),
        ("memory.capacity_tokens", 272, "take 69632 bytes of a budget of 65536"),
        ("heads.0.model", 7, "head `diverge` reads no model of the plan: 7"),
        ("provenance.rules.0.rule", 9, "`provenance.rules` names no rule"),
        ("programs.0.nodes.1.of", 1, "node 1 reads a node that does not come before it"),
        ("programs.0.nodes.2.param", 1, "node 2 names no param: 1"),
        ("programs.0.nodes.13.var", 1, "node 13 names no var: 1"),
        ("programs.0.nodes.4.head", 1, "node 4 names no head: 1"),
        ("programs.0.nodes.0.name", "entropi", "node 0 names no signal: `entropi`"),
        ("programs.0.nodes.0.args", [1], "node 0 gives `entropy` 1 arguments for 0"),
        ("programs.0.nodes.12.args", [2], "node 12 names no model: `count` of 2"),
        ("programs.0.nodes.1.n", 0, "node 1 looks at no step"),
        ("programs.0.nodes.9.texts", [], "node 9 compares with no text"),
        ("programs.0.nodes.5.value", "high", "node 6 compares number >= text"),
        ("programs.0.nodes.8.of", [0, 3], "node 8 takes bool, not number and bool"),
        ("programs.0.nodes.14.left", 3, "node 14 takes number, not bool and number"),
        ("programs.0.nodes.1.of", 0, ""),
        ("programs.0.rules.0.when", 0, "rule 0 is guarded by no bool node"),
        ("programs.0.rules.0.when", None, "a rule follows `otherwise`"),
        ("programs.0.rules.3.when", 11, "the last rule is not `otherwise`"),
        ("programs.0.rules.3.keep", False, "leaves nobody to decide this position"),
        ("programs.0.rules.1.go.model", 2, "rule 1 names no model: [2]"),
        ("programs.0.rules.1.go.model", 0, "hands the request to the model that it is at"),
        ("programs.0.rules.0.go.model", 0, "borrows from the model that it is at"),
        ("programs.0.rules.0.go.most", 11, "borrows for a node that is no number"),
        ("programs.0.rules.0.go.until", 1, "a condition that `large` does not have"),
        ("programs.0.rules.0.sets.0.var", 1, "sets no var: 1"),
        ("programs.0.rules.0.sets.0.value", 11, "sets `turns` to a node that is no number"),
        ("programs.1.untils", [0], "until 0 is no bool node"),
        ("programs.1.rules", [], "hands the request to `large`, which has no rules"),
        ("programs.1.rules.0.go.weights.0.weight", 0.5, "weights that are not positive with sum 1"),
        ("programs.1.rules.0.go.weights.0.model", 1, "mixes a model twice"),
        ("start.rules", [], "start: no rule"),
        ("start.nodes.0.name", "position", "start: node 0 needs a step"),
        ("subservers.0.tasks.1.id", "admit", "an id stands twice"),
        ("subservers.0.edges.0.target", "nowhere", "edge `admit` -> `nowhere` ends nowhere"),
        ("subservers.0.edges.0.label", "own", "no request leaves `admit` by `own`"),
        ("subservers.0.edges.5.source", "route", "no request leaves `route` by `next`"),
        ("subservers.0.edges.0.target", "extend", "`admit` must lead to `gate`"),
        ("subservers.0.edges.8.target", "finish", "`commit` must not lead to `finish` by `stay`"),
        ("subservers.0.edges.8.target", "park", "`commit` must lead to the gate by `stay`"),
        ("subservers.0.edges.5.target", "signals", "`route` is never reached"),
        ("subservers.0.tasks.9.peers", [], "no `send` to `large`"),
        ("subservers.0.tasks.9.peers", [1, 5], "a `send` names no model"),
        ("subservers.0.tasks.3.hidden", False, "`extend` does not return it"),
        ("subservers.0.edges.7.label", "keep", "leave `route` by `keep` to two tasks"),
    ],
)
def test_what_is_wrong_is_named(plan, path, new, problem):
    problems = verify(put(plan, path, new))

    assert (problem in "; ".join(problems)) if problem else problems == []


@pytest.mark.parametrize(
    ("model", "label"),
    [(0, "keep"), (0, "drop"), (0, "stay"), (1, "leave"), (0, "ended")],
)
def test_a_graph_without_an_edge_that_its_program_calls_for_is_refused(plan, model, label):
    kept = [edge for edge in plan.subservers[model].edges if edge.label != label]

    problems = verify(put(plan, f"subservers.{model}.edges", kept))

    assert any(f"no edge `{label}`, which the program calls for" in problem for problem in problems)


def test_a_lender_without_a_way_for_borrowed_stays_is_refused(plan):
    kept = [edge for edge in plan.subservers[1].edges if edge.label != "borrowed"]
    kept.append(s.Edge(source="route", label="drop", target="watch"))

    assert verify(put(plan, "subservers.1.edges", kept)) == [
        "task graph of `large`: no edge `borrowed`, which the program calls for"
    ]
