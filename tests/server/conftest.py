"""A plan by hand, as far as the front end reads one; and a real server of two tiny models for all tests to share."""

import signal
import subprocess

import openai
import pytest

from tests.factories import save_model
from tests.server.serving import TRC, serving
from tokenrouter.plan import structs as s


def model(name, context):
    return s.Model(
        name=name,
        use=f"models/{name}",
        fingerprint=name,
        family="llama",
        dtype="float32",
        stop_ids=[2],
        prefill="eager",
        vocab_size=64,
        context=context,
        layers=2,
        hidden_size=8,
        kv_bytes_per_token=64,
        weight_bytes=4096,
    )


@pytest.fixture
def plan():
    """Two models, three dials, two request fields; the pool holds 96 tokens, the smaller context 80."""
    return s.Plan(
        plan_version=1,
        min_reader=1,
        producer="test",
        policy="ping_pong",
        program_hash="0" * 64,
        tuning_hash="0" * 64,
        models=[model("small", 128), model("large", 80)],
        tokenizer=s.Tokenizer(digest="0", size=60, eos_ids=[2], template_from=0),
        params=[
            s.Param(name="tau", unit="nats", value=0.5, low=0.0, high=4.0),
            s.Param(name="free", unit="number", value=7.0),
            s.Param(name="eager", unit="bool", value=True),
        ],
        start=s.Start(
            nodes=[s.RequestField(name="tier", default="free")],
            rules=[s.StartRule(when=None, go=s.To(model=0))],
        ),
        programs=[
            s.Program(
                nodes=[s.RequestField(name="level", default=1.0)],
                rules=[s.Rule(when=None, keep=True, go=s.Stay())],
            ),
            s.Program(rules=[s.Rule(when=None, keep=True, go=s.Stay())]),
        ],
        subservers=[s.Subserver(tasks=[], edges=[])] * 2,
        windows=s.Windows(
            max_active=1, table=[[1], [1]], max_wait_ms=1.0, objective="throughput", source="none"
        ),
        memory=s.Memory(page_size=16, budget_bytes=1 << 20, capacity_tokens=96),
        estimates=s.Estimates(
            source="assumed",
            by_model=[s.Visit(share=0.5, handoffs_per_token=0.1, reached=1.0)] * 2,
            cost_per_token=1.0,
        ),
        provenance=s.Provenance(
            source="ping.route",
            digest="0",
            created="2026-01-01T00:00:00Z",
            rules=[s.RuleSource(model=0, rule=0, line=7, column=5, text="otherwise -> commit")],
        ),
        surface=s.Surface(),
    )


POLICY = """route 1
model small { use "small" cost 1.0 }
model large { use "large" cost 4.0 }
param tau: nats = 1.0 in [0.0, 10.0]
policy ping_pong {
  start small
  at small {
    when entropy > tau -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
}
"""


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """Two tiny models with a long context beside a policy over them."""
    root = tmp_path_factory.mktemp("served")
    for seed, name in enumerate(("small", "large")):
        save_model(root / name, seed=seed, context=8192, tied=seed == 0)
    (root / "ping_pong.route").write_text(POLICY)
    return root


@pytest.fixture(scope="session")
def plan_path(bench):
    """The compiled policy."""
    path = bench / "plan.json"
    command = [*TRC, "compile", str(bench / "ping_pong.route"), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="session")
def server(plan_path):
    """One server for all tests that leave it as they found it."""
    with serving(plan_path, "--dtype", "float64") as running:
        yield running
        running.empties()
        running.signal(signal.SIGTERM)
        assert running.end() == 0
        assert not any("Traceback" in line for line in running.lines)


@pytest.fixture
def client(server):
    """OpenAI's own client."""
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made
