"""Any policy comes back from its plan, in either spelling, with the same meaning and with all that people wrote."""

import msgspec
from hypothesis import Phase, given, settings

from tests.compiler.plans import facts
from tests.dsl.policies import scattered
from tokenrouter.compiler import claims, pipeline
from tokenrouter.compiler.compile import provenance, surface
from tokenrouter.compiler.decompile import decompile
from tokenrouter.compiler.emit import Tuning, emit
from tokenrouter.compiler.lower import lower
from tokenrouter.compiler.python_text import python_text
from tokenrouter.dsl import hir
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.load import parse_text
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source
from tokenrouter.plan import structs as s

SHOWN = (Phase.explicit, Phase.reuse, Phase.generate)  # such texts shrink for many minutes


def plan_of(text, name="p.route"):
    """Compile a text for made-up models; what the passes say of its rules does not matter here."""
    resolved = parse_text(text, name, one=True)
    policy = resolved.only()
    auto, _ = pipeline.run(lower(policy))
    verdicts = [(claim, claims.decide(auto, claim)) for claim in auto.claims]
    return emit(
        auto,
        [facts(f"fingerprint of {decl.use}") for decl in auto.models],
        Tuning(max_active=4, kv_budget=1 << 16),
        provenance(resolved, auto),
        surface(resolved, auto),
        [
            s.Claim(text=claim.text, status=told.status, evidence=told.evidence)
            for claim, told in verdicts
        ],
        {decl.name: "digest" for decl in auto.heads},
    )


def said(plan):
    """Return what the comments say; two on one line come back as one."""
    texts = [text for c in plan.surface.comments for text in c.text.split("#")]
    return sorted(text.strip() for text in texts if text.strip())


def written(plan):
    """Return what a surface holds as text, without spaces, which laying out changes."""
    signals = [f"{signal.name} = {signal.text}" for signal in plan.surface.signals]
    return ["".join(text.split()) for text in (*signals, *plan.surface.unreached)]


def names(text, plan):
    """Return the derived signals that each rule names, and those that they name themselves."""
    policy = parse_text(text).only()
    rules = {("start", at): [rule.when] for at, rule in enumerate(policy.start)}
    reached = {model.name for model in plan.models}
    for block in policy.blocks:
        for at, rule in enumerate(block.rules):
            parts = [rule.when, *(item.value for item in rule.action.sets)]
            if isinstance(rule.action.go, hir.Borrow):
                parts += [rule.action.go.most, rule.action.go.until]
            if block.model in reached or not block.from_any:
                rules[block.model, at] = parts
    return {
        place: {
            inner.name
            for part in parts
            if part is not None
            for inner in hir.walk(part)
            if isinstance(inner, hir.Derived)
        }
        for place, parts in rules.items()
    }


@settings(deadline=None, max_examples=25, phases=SHOWN)
@given(scattered().map(lambda text: text.replace("guarantee", "enforce")))
def test_any_policy_comes_back_from_its_plan(text):
    plan = plan_of(text)

    told = decompile(plan)
    again = plan_of(told)

    assert again.program_hash == plan.program_hash
    for part in ("models", "params", "vars", "heads", "start", "programs", "claims"):
        assert getattr(again, part) == getattr(plan, part), part
    assert written(again) == written(plan)
    assert [test.name for test in again.surface.tests] == [test.name for test in plan.surface.tests]
    assert said(again) == said(plan)
    assert decompile(again) == told
    assert layout(parse(Source.of("p.route", told))) == told
    bare = msgspec.structs.replace(plan, surface=msgspec.structs.replace(plan.surface, source=""))
    made = decompile(bare)  # from the programs alone, as for a plan that was edited
    assert layout(parse(Source.of("p.route", made))) == made
    assert plan_of(made).program_hash == plan.program_hash
    named = names(text, plan)
    assert names(told, plan) == named

    python = plan_of(python_text(parse_text(told).only()), "p.py")
    assert python.program_hash == plan.program_hash
    assert said(python) == said(plan)
    assert [test.name for test in python.surface.tests] == [
        test.name for test in plan.surface.tests
    ]

    spelt = decompile(python)  # from Python, in the first spelling
    assert layout(parse(Source.of("p.route", spelt))) == spelt
    back = plan_of(spelt)
    assert back.program_hash == plan.program_hash
    assert said(back) == said(plan)
    assert [test.name for test in back.surface.tests] == [test.name for test in plan.surface.tests]
    assert [signal.name for signal in back.surface.signals] == [
        signal.name for signal in plan.surface.signals
    ]
    assert names(decompile(python), plan) == named
    firsts = [[text.split()[:2] for text in p.surface.unreached] for p in (plan, back)]
    assert firsts[0] == firsts[1]
