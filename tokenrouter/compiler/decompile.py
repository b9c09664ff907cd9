"""Plan -> policy text that compiles to a plan of the same meaning: same `program_hash`, and nothing of the surface lost.

A plan holds its policy as it was written. Where that text no longer gives the plan's programs, because the plan was edited by
hand, each rule is told as it was written where that still holds, and from the programs where not; what `enforce` added is
taken out again, since the claim will add it anew.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler import ir, lift, pipeline, programs, written
from tokenrouter.compiler.expr import Every, walk
from tokenrouter.compiler.fold import fold
from tokenrouter.compiler.lift import NOWHERE
from tokenrouter.compiler.lower import lower, lower_expr
from tokenrouter.compiler.naming import Named, put_back
from tokenrouter.compiler.page import Page
from tokenrouter.compiler.passes.enforce import asks
from tokenrouter.compiler.route_text import head_text, laid_out, model_text
from tokenrouter.diagnostics import PolicyError
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.load import parse_text
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source
from tokenrouter.plan import structs as s
from tokenrouter.plan.literal import number, value_text
from tokenrouter.plan.structs import Plan


def decompile(plan: Plan) -> str:
    """Return the text of a `.route` file."""
    source = written.restated(plan)
    if source and _means(source, plan) and written.declares(source, plan):
        return source
    return laid_out(_made(plan))


def _made(plan: Plan) -> str:
    """Return a text for a plan whose own was lost, or that was edited by hand."""
    texts = {(r.model, r.rule): r.text for r in plan.provenance.rules}
    signals = _signals(plan)
    for told, names in ((texts, signals), ({}, signals), (texts, [])):
        text = _write(plan, told, names)
        if _means(text, plan):
            return text
    return _write(plan, {}, [])


def _signals(plan: Plan) -> list[Named]:
    """Return what the derived signals of a plan stand for, the largest first."""
    if not plan.surface.signals:
        return []
    try:
        policy = parse_text(_write(plan, {}, []), one=True).only()
    except PolicyError:
        return []
    made = [Named(signal.name, lower_expr(signal.of)) for signal in policy.signals]
    return sorted(made, key=lambda signal: -len(list(walk(signal.of))))


def _means(text: str, plan: Plan) -> bool:
    """Return whether a text compiles to the programs of a plan."""
    try:
        policy = parse_text(text, one=True).only()
    except PolicyError:
        return False
    auto, _ = pipeline.run(lower(policy))
    template = plan.models[plan.tokenizer.template_from].name
    if (policy.template_from or _start_model(plan)) != template:
        return False
    return programs.programs(auto) == plan.programs and programs.start(auto) == plan.start


def _write(plan: Plan, told: dict[tuple[int, int], str], signals: list[Named]) -> str:
    """Return the text of a file; `told` holds the rules that are known as written, by model and number.

    In all others what `signals` stand for is told by their names.
    """
    comments: dict[str, list[s.Comment | hir.Comment]] = {}
    for comment in plan.surface.comments:
        comments.setdefault(_anchor(plan, comment.anchor), []).append(comment)
    page = Page(comments)
    last = comments.pop("file", [])
    page.lines += [c.text for c in last if c.place == "above"]
    page.lines += ["route 1", ""]
    _declarations(plan, page)
    page.gap()
    page.open(f"policy {plan.policy} {{", "policy")
    _members(plan, page, told, signals)
    page.close("policy")
    for at, test in enumerate(plan.surface.tests):
        page.gap()
        _test(page, at, test.text)
    # What no line asked for stands at the end rather than nowhere.
    page.lines += page.left()
    page.lines += [c.text for c in last if c.place == "end"]
    return "\n".join(page.lines) + "\n"


def _test(page: Page, at: int, text: str) -> None:
    """Write a test, each case under its comments."""
    tree = parse(Source.of("test", f"route 1 {text}"))
    node = next((item for item in tree.file.items if isinstance(item, ast.Test)), None)
    if tree.problems or node is None:  # a surface that was edited by hand stays as it is
        page.add(text, f"test {at}")
        return
    page.open(f"test {node.name.text} for {node.policy.text} {{", f"test {at}")
    for index, case in enumerate(node.cases):
        page.add(tree.one_line(case.start, case.end), f"case {at} {index}", "  ")
    page.close(f"test {at}")


def _anchor(plan: Plan, anchor: str) -> str:
    """Return the anchor as this text has it: blocks of `at any` are written out, model by model."""
    first = next(m.name for m, p in zip(plan.models, plan.programs, strict=True) if p.rules)
    if anchor == "at any":
        return f"at {first}"
    if anchor.startswith("rule any "):
        return f"rule {first} {anchor.removeprefix('rule any ')}"
    return anchor


def _declarations(plan: Plan, page: Page) -> None:
    for declared in plan.models:
        page.add(model_text(declared), f"model {declared.name}")
    for text in plan.surface.unreached:
        if text.startswith("model "):
            page.add(text, f"model {text.split()[1]}")
    page.gap()
    for head in plan.heads:
        page.add(head_text(head, plan.models[head.model].name), f"head {head.name}")
    for text in plan.surface.unreached:
        if text.startswith("head "):
            page.add(text, f"head {text.split()[1]}")
    for param in plan.params:
        bounds = ""
        if param.low is not None and param.high is not None:
            bounds = f" in [{number(param.low)}, {number(param.high)}]"
        page.add(
            f"param {param.name}: {param.unit} = {value_text(param.value)}{bounds}",
            f"param {param.name}",
        )
    for var in plan.vars:
        page.add(f"var {var.name}: {var.unit} = {value_text(var.value)}", f"var {var.name}")
    for signal in plan.surface.signals:
        page.add(f"signal {signal.name} = {signal.text}", f"signal {signal.name}")


def _members(
    plan: Plan, page: Page, told: dict[tuple[int, int], str], signals: list[Named]
) -> None:
    _start(plan, page, signals)
    enforced = [_claim(claim.text) for claim in plan.claims if claim.status == "enforced"]
    for at, (model, program) in enumerate(zip(plan.models, plan.programs, strict=True)):
        if not program.rules:
            continue
        page.open(f"at {model.name} {{", f"at {model.name}", "  ")
        for index, rule in enumerate(lift.state(plan, at).rules):
            if rule.source != "fallback":
                text = told.get((at, index)) or _rule(rule, model.name, enforced, signals)
                page.add(text, f"rule {model.name} {index}", "    ")
        page.close(f"at {model.name}", "  ")
    for text in plan.surface.unreached:
        if text.startswith("at "):
            first, *rest, _ = text.splitlines()
            name = text.split()[1]
            page.open(first, f"at {name}", "  ")
            for index, line in enumerate(rest):
                page.add(line.strip(), f"rule {name} {index}", "    ")
            page.close(f"at {name}", "  ")
    for at, claim in enumerate(plan.claims):
        word = "enforce" if claim.status == "enforced" else "guarantee"
        page.add(f"{word} {claim.text}", f"claim {at}", "  ")
    fallback = _fallback(plan)
    if fallback is not None and plan.models[fallback].name != _start_model(plan):
        page.add(f"fallback {plan.models[fallback].name}", "fallback", "  ")
    if plan.windows.objective != "throughput":
        page.add(f"objective {plan.windows.objective}", "objective", "  ")
    template = plan.models[plan.tokenizer.template_from].name
    if template != _start_model(plan):
        page.add(f"template from {template}", "template", "  ")


def _start(plan: Plan, page: Page, signals: list[Named]) -> None:
    rules = lift.start_rules(plan)
    if len(rules) == 1:
        page.add(f"start {_goes(rules[0].go)}", "start", "  ")
        return
    page.open("start {", "start", "  ")
    for index, rule in enumerate(rules):
        guard = "otherwise" if rule.when is None else f"when {put_back(rule.when, signals)}"
        page.add(f"{guard} -> {_goes(rule.go)}", f"start rule {index}", "    ")
    page.close("start", "  ")


def _goes(go: ir.Go) -> str:
    return ir.action(True, go).removeprefix("commit then ")


def _start_model(plan: Plan) -> str:
    go = plan.start.rules[-1].go
    return plan.models[go.model if isinstance(go, s.To) else go.weights[0].model].name


def _fallback(plan: Plan) -> int | None:
    """Return where requests go when a bound is reached; None where no rule says."""
    for at, program in enumerate(plan.programs):
        for rule in program.rules:
            if rule.source == "fallback":
                return rule.go.model if isinstance(rule.go, s.To) else at
    return None


def _rule(rule: ir.Rule, model: str, enforced: list[ir.ClaimDecl], signals: list[Named]) -> str:
    """Return a rule as text, without what `enforce` wrote into it."""
    when = rule.when
    if when is not None and rule.source == "enforced":
        made = [ask for claim in enforced for ask in asks(model, rule, claim)]
        parts = when.of if isinstance(when, Every) else (when,)
        own = tuple(part for part in parts if part not in made)
        when = fold(Every(own)) if own else None
    go = rule.go
    if isinstance(go, ir.Borrow):
        until = None if go.until is None else put_back(go.until, signals)
        go = replace(go, most=put_back(go.most, signals), until=until)
    guard = "otherwise" if when is None else f"when {put_back(when, signals)}"
    sets = (replace(item, value=put_back(item.value, signals)) for item in rule.sets)
    return f"{guard} -> {ir.action(rule.keep, go)}{''.join(f' set {item}' for item in sets)}"


def _claim(text: str) -> ir.ClaimDecl:
    """Return a claim from its text in a plan, as `share(large) <= 0.4`."""
    left, _, bound = text.partition(" <= ")
    measure, _, model = left.removesuffix(")").partition("(")
    return ir.ClaimDecl(
        "enforce", "share" if measure == "share" else "count", model, float(bound), NOWHERE
    )
