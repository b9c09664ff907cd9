"""`trc explain`, `trc diff` and `trc graph` on a plan."""

import json
import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from tests.plan.conftest import plan as plan_fixture
from tokenrouter import cli
from tokenrouter.plan import structs as s
from tokenrouter.plan.graph import mermaid, tasks, transitions
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import write
from tokenrouter.plan.show import show
from tokenrouter.plan.svg import svg

plan = plan_fixture
replace = msgspec.structs.replace


@pytest.fixture
def file(plan, tmp_path):
    write(seal(plan), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_explain_prints_the_page(plan, file, capsys):
    assert cli.main(["explain", str(file)]) == 0
    assert capsys.readouterr().out == show(seal(plan))


def test_explain_of_what_is_no_plan_is_one_line(tmp_path, capsys):
    assert cli.main(["explain", str(tmp_path / "plan.json")]) == 2
    assert capsys.readouterr().err == (
        f"trc explain: {tmp_path / 'plan.json'}: no such plan; `trc compile` writes one\n"
    )


@pytest.mark.parametrize("verb", ["check", "test", "fmt", "compile"])
def test_a_plan_in_the_place_of_a_policy_is_told_in_a_line(file, capsys, verb):
    assert cli.main([verb, str(file)]) == 2
    assert capsys.readouterr().err == (
        f"trc {verb}: `{file}` is a plan, not a policy; `trc decompile {file}` writes its policy\n"
    )


def test_the_transition_graph_names_every_rule(plan, golden):
    golden(mermaid(transitions(plan)))


def test_the_task_graph_is_drawn_as_it_stands(plan, golden):
    golden(mermaid(tasks(plan, 1)))


def test_an_svg_holds_every_box_and_every_text(plan):
    graph = transitions(plan)
    root = ET.fromstring(svg(graph))

    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {node.text for node in graph.nodes} <= set(texts)
    labelled = [arrow for arrow in graph.arrows if arrow.text]
    assert sum(text.endswith(arrow.text) for arrow in labelled for text in texts) >= len(labelled)
    boxes = [
        (float(r.get("x")), float(r.get("y")))
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(boxes) == len(graph.nodes) == len(set(boxes))


def test_graph_writes_a_file_and_refuses_an_unknown_model(file, tmp_path, capsys):
    assert cli.main(["graph", str(file), "--format", "svg", "-o", str(tmp_path / "g.svg")]) == 0
    assert (tmp_path / "g.svg").read_text().startswith("<svg ")
    assert cli.main(["graph", str(file), "--tasks", "larg"]) == 2
    assert capsys.readouterr().err.endswith("no model `larg`; there are `small`, `large`\n")


def trace(tmp_path, *tokens):
    lines = [
        {"position": position, "ms": 10.0 * at, "token": {"id": 1, "model": model, "rule": rule}}
        for at, (position, model, rule) in enumerate(tokens)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def test_analyze_sets_actual_figures_beside_the_expected_ones(file, tmp_path, capsys, golden):
    path = trace(
        tmp_path,
        (0, "small", 3),
        (1, "small", 3),
        (2, "large", None),
        (3, "small", 3),
        (0, "large", 0),
        (1, "small", 2),
    )

    assert cli.main(["explain", str(file), "--analyze", str(path)]) == 0
    golden(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([(0, "mid", 0)], "line 1: the plan has no model `mid`"),
        ([(0, "small", 0), (1, "small", 4)], "line 2: `small` has no rule 4"),
        ([], "the trace holds no token"),
    ],
)
def test_a_trace_of_another_plan_is_refused_in_a_line(file, tmp_path, capsys, tokens, message):
    assert cli.main(["explain", str(file), "--analyze", str(trace(tmp_path, *tokens))]) == 1
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1


def test_what_is_no_trace_is_refused_in_a_line(file, tmp_path, capsys):
    (tmp_path / "t").write_text("token\n", encoding="utf-8")

    assert cli.main(["explain", str(file), "--analyze", str(tmp_path / "t")]) == 1
    assert "t, line 1: not a line of a trace" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["TR2301", "tr2301"])
def test_explain_prints_the_page_of_a_code(code, capsys):
    assert cli.main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith("# TR2301: a rule that can never fire\n")


def test_an_unknown_code_is_told_in_a_line(capsys):
    assert cli.main(["explain", "TR2399"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("trc explain: there is no code `TR2399`") and len(err.splitlines()) == 1


def test_what_mermaid_and_markdown_would_read_as_markup_is_written_by_number(plan):
    small = plan.programs[0]
    nodes = [
        s.TokenIn(texts=['"**"', "_x_", "&lt;", "\n", "$$"])
        if isinstance(node, s.TokenIn)
        else node
        for node in small.nodes
    ]
    changed = replace(plan, programs=[replace(small, nodes=nodes), plan.programs[1]])

    page = mermaid(transitions(changed))

    told = page.split("token in {")[1].split("}")[0]
    assert not re.search(r"[*<&$`\\]|#(?!\d+;)", told)
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), told) == (
        r'"\"**\"", "_x_", "&lt;", "\n", "$$"'
    )
