"""A route program as the source of one Triton kernel, specialised for its plan and meant to be read.

Program (row, part) of the grid surveys a part of a row's logits for exactly the figures that the rules need; the program of a
row that comes last joins them, evaluates the nodes and decides. Every node is one line, with its text in the policy's words
behind it. Numbers are float64, as where torch evaluates the program.
"""

from __future__ import annotations

from textwrap import indent

from tokenrouter.plan.structs import Plan
from tokenrouter.plan.text import rule_text
from tokenrouter.runtime.kernel.layout import COUNTS, POSITION, SEED, Layout, layout
from tokenrouter.runtime.kernel.nodes import Names, imports, node_lines, plain
from tokenrouter.runtime.kernel.rules import rule_lines, until_lines

PART = 4096  # logits that one program of the grid reads

HEAD = '''"""Route program of `{model}` in the policy `{policy}`.

Written for plan {hash}; do not edit.

{rules}
"""

import triton
import triton.language as tl
{imports}

VOCABULARY = tl.constexpr({vocabulary})
PARTS = tl.constexpr({parts})  # programs by row


@triton.jit
def route(
    logits_ptr,
    tokens_ptr,
    words_ptr,
    numbers_ptr,
    past_ptr,
    heads_ptr,
    tables_ptr,
    records_ptr,
    counters_ptr,
    decided_ptr,
    values_ptr,
    stride,
):
    row = tl.program_id(0).to(tl.int64)
    wide = records_ptr.dtype.element_ty
    token = tl.load(tokens_ptr + row)
'''


def source(plan: Plan, model: int) -> str:
    """Return the kernel of one model's program."""
    names = Names(plan, model, layout(plan, model))
    decide = [*node_lines(names), *rule_lines(names), *until_lines(names), *_written(names)]
    decide = _rows(names.columns, " ".join(decide)) + decide
    n_parts = parts(names)
    body = "\n".join(decide)
    body = _survey(names, n_parts) + indent(body, " " * 8) if n_parts else indent(body, " " * 4)
    head = HEAD.format(
        model=plan.models[model].name,
        policy=plan.policy,
        hash=plan.program_hash,
        rules=_rules(plan, model),
        imports=imports(body),
        vocabulary=plan.tokenizer.size,
        parts=max(1, n_parts),
    )
    return head + body + "\n"


def parts(names: Names) -> int:
    """Return into how many parts a row's logits are cut; 0 where no figure of them is needed."""
    return -(-names.size // PART) if names.surveys() else 0


def _rules(plan: Plan, model: int) -> str:
    rules = plan.programs[model].rules
    lines = [f"{at}: {plain(rule_text(plan, model, rule))}" for at, rule in enumerate(rules)]
    text = "\n".join(lines) or "no rules: it is only borrowed from"
    # What a policy says must not end the string that it stands in.
    return text.replace("\\", "\\\\").replace('""', '"\\"')


def _survey(names: Names, n_parts: int) -> str:
    wanted = names.surveys()
    moments = 2 if "varentropy" in wanted else int(bool(wanted & {"entropy", "entropy_norm"}))
    flags = (
        f"MOMENTS={moments}, SECOND={'margin' in wanted}, RANK={'rank' in wanted}, "
        f"K={names.k}, SLOTS={names.slots}"
    )
    room = 1 << (n_parts - 1).bit_length()
    record = f"(FIELDS + {names.slots})"
    lines = [
        "part = tl.program_id(1)",
        f"v = part * {PART} + tl.arange(0, {PART})",
        "x = tl.load(logits_ptr + row * stride + v, mask=v < VOCABULARY, other=float('-inf'))",
        "x = x.to(wide)",
    ]
    if names.deferred:
        hidden = " | ".join(f"(v == {column})" for column in names.deferred)
        lines.append(f"x = tl.where({hidden}, float('-inf'), x)  # never sampled")
    lines += [
        "chosen = tl.load(logits_ptr + row * stride + token).to(wide)",
        f"records = records_ptr + row * PARTS * {record}",
        f"record = records + part * {record}",
        f"survey(x, v, chosen, token, record, {flags})",
        "if is_last(counters_ptr + row, PARTS):",
        "    m, total, first, square, second, before = join(",
        f"        records, PARTS, {flags}, PARTS={room}",
        "    )",
    ]
    if names.k:
        room_of_all = f"K={names.k}, SLOTS={names.slots}, PARTS={room}"
        lines.append(f"    top = join_largest(records, PARTS, {room_of_all})")
    return indent("\n".join(lines), " " * 4) + "\n"


def _rows(columns: Layout, read: str) -> list[str]:
    """Return the lines that find what is read of a row's inputs."""
    lines = []
    if "words" in read or "seed" in read:
        lines.append(f"words = words_ptr + row * {COUNTS + len(columns.windows)}")
    if "seed" in read:
        lines += [f"seed = tl.load(words + {SEED})", f"position = tl.load(words + {POSITION})"]
    widths = {"numbers": len(columns.numbers), "past": columns.width, "heads": len(columns.heads)}
    return lines + [f"{name} = {name}_ptr + row * {n}" for name, n in widths.items() if n]


def _written(names: Names) -> list[str]:
    columns = names.columns
    lines = ["decided = decided_ptr + row * 4"]
    for at, name in enumerate(("rule", "keep", "target", "untils")):
        lines.append(f"tl.store(decided + {at}, {name})")
    if columns.values:
        lines.append(f"values = values_ptr + row * {len(columns.values)}")
    for column, at in enumerate(columns.values):
        lines.append(f"tl.store(values + {column}, n{at}.to(tl.float64))")
    return lines
