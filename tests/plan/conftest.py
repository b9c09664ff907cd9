"""A plan that uses every part of the format, made by hand."""

import pytest

from tokenrouter.plan import structs as s


def model(name, **fields):
    given = {
        "use": f"models/{name}",
        "fingerprint": f"{name}-fingerprint",
        "family": "llama",
        "dtype": "float32",
        "stop_ids": [2],
        "prefill": "eager",
        "vocab_size": 64,
        "context": 128,
        "layers": 2,
        "hidden_size": 8,
        "kv_bytes_per_token": 64,
        "weight_bytes": 4096,
    }
    return s.Model(name=name, **(given | fields))


def edges(*rows):
    return [
        s.Edge(source=source, label=label, target=target)
        for source, label, target in (row.split() for row in rows)
    ]


def small_program():
    return s.Program(
        nodes=[
            s.Signal(name="entropy"),
            s.Window(kind="mean", of=0, n=8),
            s.ParamRef(param=0),
            s.Compare(sign=">", left=1, right=2),
            s.HeadRef(head=0),
            s.Const(value=0.5, unit="prob"),
            s.Compare(sign=">=", left=4, right=5),
            s.Not(of=6),
            s.AllOf(of=[3, 7]),
            s.TokenIn(texts=["Wait", "\n"]),
            s.ClassIs(name="punct"),
            s.AnyOf(of=[8, 9, 10]),
            s.Signal(name="count", args=[1]),
            s.VarRef(var=0),
            s.Arith(sign="+", left=12, right=13),
            s.RequestField(name="tier", default="free"),
            s.Const(value="paid", unit="text"),
            s.Compare(sign="==", left=15, right=16),
        ],
        rules=[
            s.Rule(
                when=11,
                keep=False,
                go=s.Borrow(model=1, most=14, until=0),
                sets=[s.Assign(var=0, value=14)],
            ),
            s.Rule(when=17, keep=False, go=s.To(model=1)),
            s.Rule(when=6, keep=True, go=s.Stop(), source="enforced"),
            s.Rule(when=None, keep=True, go=s.Stay()),
        ],
    )


def large_program():
    return s.Program(
        nodes=[
            s.Signal(name="maxprob"),
            s.Const(value=0.9, unit="prob"),
            s.Compare(sign=">", left=0, right=1),
        ],
        rules=[
            s.Rule(
                when=None,
                keep=True,
                go=s.Mix(weights=[s.Share(model=0, weight=0.75), s.Share(model=1, weight=0.25)]),
            )
        ],
        untils=[2],
    )


def small_graph():
    return s.Subserver(
        tasks=[
            s.Admit(id="admit", prefill="eager"),
            s.Resume(id="resume"),
            s.Gate(id="gate"),
            s.Extend(id="extend", hidden=True),
            s.Sample(id="sample"),
            s.Signals(id="signals"),
            s.Route(id="route"),
            s.Commit(id="commit"),
            s.Park(id="park"),
            s.Send(id="send", peers=[1]),
            s.Finish(id="finish"),
        ],
        edges=edges(
            "admit next gate",
            "resume next gate",
            "gate next extend",
            "extend next sample",
            "sample own signals",
            "signals next route",
            "route keep commit",
            "route drop park",
            "commit stay gate",
            "commit leave park",
            "commit ended finish",
            "park next send",
        ),
    )


def system():
    return s.System(
        step_ms=[[6.0, 6.5, 7.0], [28.0, 30.0, 32.0]],
        p=[[0.5, 0.5], [1.0, 0.0]],
        c=[[1.0, 0.0], [1.0, 0.0]],
        first_p=[[0.25, 0.75], [1.0, 0.0]],
        first_c=[[1.0, 0.0], [1.0, 0.0]],
        model_of=[0, 1],
        entry=[1.0, 0.0],
        mean_output_tokens=256.0,
        busy=[s.BusySet(models=[0, 1], rates=[0.75, 0.5])],
        delta_ms=0.1,
    )


def large_graph():
    return s.Subserver(
        tasks=[
            s.Admit(id="admit", prefill="lazy"),
            s.Resume(id="resume"),
            s.Gate(id="gate"),
            s.Extend(id="extend", hidden=False),
            s.Sample(id="sample"),
            s.Route(id="route"),
            s.Signals(id="watch"),
            s.CountDown(id="count_down"),
            s.Commit(id="commit"),
            s.Park(id="park"),
            s.Send(id="send", peers=[0]),
            s.Finish(id="finish"),
        ],
        edges=edges(
            "admit next gate",
            "resume next gate",
            "gate next extend",
            "extend next sample",
            "sample own route",
            "sample borrowed watch",
            "watch next count_down",
            "count_down next commit",
            "route keep commit",
            "commit stay gate",
            "commit leave park",
            "commit ended finish",
            "park next send",
        ),
    )


@pytest.fixture
def plan():
    return s.Plan(
        plan_version=1,
        min_reader=1,
        producer="tokenrouter 0.1.0",
        policy="everything",
        program_hash="",
        tuning_hash="",
        models=[model("small"), model("large", cost=4.0, prefill="lazy", kv_bytes_per_token=192)],
        tokenizer=s.Tokenizer(digest="vocabulary", size=60, eos_ids=[2], template_from=0),
        params=[s.Param(name="tau", unit="nats", value=0.35, low=0.0, high=4.0)],
        vars=[s.Var(name="turns", unit="count", value=0.0)],
        heads=[
            s.Head(
                name="diverge",
                kind="linear",
                file="diverge.safetensors",
                digest="head",
                model=0,
                reads=["hidden"],
            )
        ],
        start=s.Start(
            nodes=[
                s.Signal(name="prompt_tokens"),
                s.Const(value=100.0, unit="count"),
                s.Compare(sign=">", left=0, right=1),
            ],
            rules=[
                s.StartRule(when=2, go=s.To(model=1)),
                s.StartRule(when=None, go=s.To(model=0)),
            ],
        ),
        programs=[small_program(), large_program()],
        subservers=[small_graph(), large_graph()],
        windows=s.Windows(
            max_active=3,
            table=[[1, 1, 2], [1, 2, 2]],
            max_wait_ms=50.0,
            objective="throughput",
            source="analytic",
            optimality_gap=0.01,
            gap_at=3,
            machine="a stated machine",
            system=system(),
        ),
        memory=s.Memory(page_size=16, budget_bytes=65536, capacity_tokens=256),
        claims=[s.Claim(text="share(large) <= 0.4", status="expected", evidence="assumed")],
        estimates=s.Estimates(
            source="assumed",
            by_model=[
                s.Visit(share=0.75, handoffs_per_token=0.25, reached=1.0),
                s.Visit(share=0.25, handoffs_per_token=0.25, reached=0.5),
            ],
            cost_per_token=1.75,
            tokens_per_s=[10.0, 18.0, 25.0],
            rules=[[0.25, 0.25, 0.125, 0.375], [1.0]],
            start=[0.25, 0.75],
            loads=[
                s.Load(
                    n=3,
                    tokens_per_s=25.0,
                    by_model=[
                        s.ModelLoad(utilisation=0.5, mean_batch=1.25, admission_delay_ms=2.0),
                        s.ModelLoad(utilisation=0.9, mean_batch=1.5, admission_delay_ms=7.5),
                    ],
                )
            ],
        ),
        provenance=s.Provenance(
            source="everything.route",
            digest="source",
            created="2026-11-29T12:00:00Z",
            rules=[s.RuleSource(model=0, rule=0, line=9, column=5, text="when ... -> borrow")],
        ),
        surface=s.Surface(
            signals=[s.SurfaceSignal(name="shaky", text="mean(entropy, 8) > tau")],
            tests=[s.SurfaceTest(name="a test", text="at small -> commit")],
            unreached=['model spare { use "spare" }'],
            comments=[s.Comment(anchor="policy", place="above", text="# all of it")],
        ),
    )
