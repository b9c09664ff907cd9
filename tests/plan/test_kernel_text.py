"""A route program as the source of a kernel: readable, safe to write down, and made without torch."""

import ast
import subprocess
import sys

import msgspec
import pytest

from tokenrouter import cli
from tokenrouter.plan import structs as s
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import write
from tokenrouter.runtime.kernel.layout import layout, why_not
from tokenrouter.runtime.kernel.source import source


@pytest.mark.parametrize("model", [0, 1], ids=["small", "large"])
def test_a_kernel_can_be_read(plan, golden, model):
    golden(source(msgspec.structs.replace(plan, program_hash="5ea1" * 16), model))


def test_explain_prints_every_kernel_of_a_plan(plan, tmp_path, capsys):
    file = tmp_path / "plan.json"
    write(seal(plan), file)

    assert cli.main(["explain", str(file), "--kernel"]) == 0

    out = capsys.readouterr().out
    assert all(source(seal(plan), model) in out for model in (0, 1))


def test_explain_says_why_a_program_is_no_kernel(plan, tmp_path, capsys):
    nodes = [*plan.programs[1].nodes, s.Signal(name="epistemic", args=[300])]
    program = msgspec.structs.replace(plan.programs[1], nodes=nodes)
    file = tmp_path / "plan.json"
    write(seal(msgspec.structs.replace(plan, programs=[plan.programs[0], program])), file)

    assert cli.main(["explain", str(file), "--kernel"]) == 0

    reason = "# `large` runs as torch operations: epistemic(300) asks for more than 256 logits\n"
    assert capsys.readouterr().out.endswith(reason)


def test_the_mass_of_more_than_the_vocabulary_is_no_obstacle(plan):
    nodes = [*plan.programs[1].nodes, s.Signal(name="mass", args=[300])]
    program = msgspec.structs.replace(plan.programs[1], nodes=nodes)

    assert why_not(msgspec.structs.replace(plan, programs=[plan.programs[0], program]), 1) is None


@pytest.mark.parametrize(
    "text", ['"""\nimport os', "\\", '\\"\\"\\"', "\0", "a\u2028b", "x" * 10_000], ids=ascii
)
def test_no_text_of_a_policy_gets_out_of_its_comment(plan, text):
    program = plan.programs[0]
    nodes = list(program.nodes)
    nodes[9] = s.TokenIn(texts=[text])
    hostile = msgspec.structs.replace(program, nodes=nodes)
    plain = source(plan, 0)

    found = source(msgspec.structs.replace(plan, programs=[hostile, plan.programs[1]]), 0)

    kinds = [type(node) for node in ast.walk(ast.parse(found))]
    assert kinds == [type(node) for node in ast.walk(ast.parse(plain))]
    assert max(map(len, found.splitlines())) < 250


def test_texts_are_compared_by_the_host(plan):
    columns = layout(plan, 0)

    assert 17 in columns.numbers
    assert not {15, 16} & set(columns.needed)


def test_kernels_are_written_without_torch_and_triton(plan, tmp_path):
    file = tmp_path / "plan.json"
    write(seal(plan), file)
    code = (
        "import sys; from tokenrouter import cli;"
        f"cli.main(['explain', {str(file)!r}, '--kernel']);"
        "assert not {'torch', 'triton'} & sys.modules.keys()"
    )

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
