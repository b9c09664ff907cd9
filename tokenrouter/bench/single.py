"""Plans of the comparison: each model of a policy alone behind a server of its own, as an ordinary server has it.

Such a server writes whatever its one model writes. Its program has no rule that does anything; it only names the
signals of the logits that the policy reads there, so that `route.trace` tells them with each token: an ordinary server
would have to send whole distributions for that, which would make the comparison's other side slower, not faster.
"""

from __future__ import annotations

import msgspec

from tokenrouter.bench.http import BenchError
from tokenrouter.plan import structs as s
from tokenrouter.plan.hash import seal
from tokenrouter.plan.structs import Plan
from tokenrouter.signals import SIGNALS

SENT = ("logits", "candidate")  # what only the model's server can know


def single(plan: Plan, model: int) -> Plan:
    """Return the plan that serves one model of a plan alone; raises BenchError where its signals cannot be told."""
    told = _told(plan, model)
    old = plan.models[model]
    nodes: list[s.Node] = []
    rules: list[s.Rule] = []
    for node in told:
        at = len(nodes)
        compare = s.Compare(sign=">", left=at, right=at + 1)
        nodes += [node, s.Const(value=0.0, unit="number"), compare]
        rules.append(s.Rule(when=at + 2, keep=True, go=s.Stay()))
    rules.append(s.Rule(when=None, keep=True, go=s.Stay()))
    return seal(
        msgspec.structs.replace(
            plan,
            policy=f"{plan.policy}_{old.name}",
            models=[msgspec.structs.replace(old, prefill="eager")],
            tokenizer=msgspec.structs.replace(plan.tokenizer, template_from=0),
            params=[],
            vars=[],
            heads=[],
            start=s.Start(rules=[s.StartRule(when=None, go=s.To(model=0))]),
            programs=[s.Program(nodes=nodes, rules=rules)],
            subservers=[_graph(signals=bool(told))],
            windows=s.Windows(
                max_active=plan.windows.max_active,
                table=[[1] * plan.windows.max_active],
                max_wait_ms=plan.windows.max_wait_ms,
                objective="throughput",
                source="none",
            ),
            claims=[],
            estimates=s.Estimates(
                source="assumed",
                by_model=[s.Visit(share=1.0, handoffs_per_token=0.0, reached=1.0)],
                cost_per_token=old.cost,
            ),
            provenance=s.Provenance(source="", digest="", created=plan.provenance.created),
            surface=s.Surface(),
        )
    )


def _told(plan: Plan, model: int) -> list[s.Signal]:
    """Return the signals of the logits that a model's program reads."""
    found: list[s.Signal] = []
    for node in plan.programs[model].nodes:
        if isinstance(node, s.HeadRef):
            raise BenchError(
                f"--baseline: the policy asks head `{plan.heads[node.head].name}`, which no server tells of"
            )
        if isinstance(node, s.Signal) and SIGNALS[node.name].needs == "load":
            raise BenchError(
                f"--baseline: the policy reads `{node.name}`, which a dispatcher cannot know"
            )
        if isinstance(node, s.Signal) and SIGNALS[node.name].needs in SENT and node not in found:
            found.append(node)
    return found


def _graph(*, signals: bool) -> s.Subserver:
    tasks: list[s.Task] = [
        s.Admit(id="admit", prefill="eager"),
        s.Resume(id="resume"),
        s.Gate(id="gate"),
        s.Extend(id="extend", hidden=False),
        s.Sample(id="sample"),
        *([s.Signals(id="signals")] if signals else []),
        s.Route(id="route"),
        s.Commit(id="commit"),
        s.Finish(id="finish"),
    ]
    edges = [
        s.Edge(source="admit", label="next", target="gate"),
        s.Edge(source="resume", label="next", target="gate"),
        s.Edge(source="gate", label="next", target="extend"),
        s.Edge(source="extend", label="next", target="sample"),
        s.Edge(source="sample", label="own", target="signals" if signals else "route"),
        *([s.Edge(source="signals", label="next", target="route")] if signals else []),
        s.Edge(source="route", label="keep", target="commit"),
        s.Edge(source="commit", label="stay", target="gate"),
        s.Edge(source="commit", label="ended", target="finish"),
    ]
    return s.Subserver(tasks=tasks, edges=edges)
