"""A resolved policy -> a whole `.route` text, with its declarations, tests and comments: for one that was written in Python."""

from __future__ import annotations

from tokenrouter.compiler.lower import lower_expr
from tokenrouter.compiler.naming import by_name
from tokenrouter.compiler.page import Page, by_anchor
from tokenrouter.compiler.route_text import (
    case_text,
    goes,
    head_text,
    laid_out,
    model_text,
    rule_text,
)
from tokenrouter.dsl import hir
from tokenrouter.plan.literal import number, quote, value_text


def policy_text(policy: hir.Policy) -> str:
    """Return the text of a file."""
    page = Page(by_anchor(policy.comments))
    whole = page.comments.pop("file", [])
    page.lines += [c.text for c in whole if c.place == "above"]
    page.lines += ["route 1", ""]
    _declarations(page, policy)
    page.gap()
    page.open(f"policy {policy.name} {{", "policy")
    _start(page, policy)
    _blocks(page, policy)
    _rest(page, policy)
    page.close("policy")
    for at, test in enumerate(policy.tests):
        page.gap()
        page.open(f"test {quote(test.name)} for {policy.name} {{", f"test {at}")
        for index, case in enumerate(test.cases):
            page.add(case_text(case), f"case {at} {index}", "  ")
        page.close(f"test {at}")
    page.lines += page.left()
    page.lines += [c.text for c in whole if c.place == "end"]
    return laid_out("\n".join(page.lines) + "\n")


def declarations(policy: hir.Policy) -> list[str]:
    """Return the lines of the declarations alone."""
    page = Page(by_anchor(policy.comments))
    _declarations(page, policy)
    return [*page.lines, *page.left()]


def _declarations(page: Page, policy: hir.Policy) -> None:
    for model in policy.models:
        page.add(model_text(model), f"model {model.name}")
    page.gap()
    for head in (*policy.heads, *policy.idle_heads):
        page.add(head_text(head, head.model), f"head {head.name}")
    for param in policy.params:
        bounds = ""
        if param.low is not None and param.high is not None:
            bounds = f" in [{number(param.low)}, {number(param.high)}]"
        text = f"param {param.name}: {param.unit} = {value_text(param.value)}{bounds}"
        page.add(text, f"param {param.name}")
    for var in policy.vars:
        page.add(f"var {var.name}: {var.unit} = {value_text(var.value)}", f"var {var.name}")
    for signal in policy.signals:
        page.add(
            f"signal {signal.name} = {lower_expr(by_name(signal.of))}", f"signal {signal.name}"
        )


def _start(page: Page, policy: hir.Policy) -> None:
    if len(policy.start) == 1:
        page.add(f"start {goes(policy.start[0].go)}", "start", "  ")
        return
    page.open("start {", "start", "  ")
    for index, rule in enumerate(policy.start):
        guard = "otherwise" if rule.when is None else f"when {lower_expr(by_name(rule.when))}"
        page.add(f"{guard} -> {goes(rule.go)}", f"start rule {index}", "    ")
    page.close("start", "  ")


def _blocks(page: Page, policy: hir.Policy) -> None:
    """Write the rules of the models that have some of their own, and `at any` once."""
    rest = next((block for block in policy.blocks if block.from_any), None)
    own = [block for block in policy.blocks if block.rules and not block.from_any]
    for name, block in [*((b.model, b) for b in own), *([("any", rest)] if rest else [])]:
        page.open(f"at {name} {{", f"at {name}", "  ")
        for index, rule in enumerate(block.rules):
            page.add(rule_text(rule), f"rule {name} {index}", "    ")
        page.close(f"at {name}", "  ")


def _rest(page: Page, policy: hir.Policy) -> None:
    for at, claim in enumerate(policy.claims):
        text = f"{claim.kind} {claim.measure}({claim.model}) <= {number(claim.bound)}"
        page.add(text, f"claim {at}", "  ")
    if policy.fallback is not None:
        page.add(f"fallback {policy.fallback}", "fallback", "  ")
    objective = policy.objective
    if objective.speed is not None:
        text = f"objective {objective.kind} where speed >= {number(objective.speed)} tokens/s"
        page.add(text, "objective", "  ")
    elif objective.kind != "throughput":
        page.add(f"objective {objective.kind}", "objective", "  ")
    if policy.template_from is not None:
        page.add(f"template from {policy.template_from}", "template", "  ")
