"""One request through the engine of this process: what `trc run` does, by the same checks as a served request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.errors import RequestRefused
from tokenrouter.runtime.grammar import Grammars
from tokenrouter.runtime.python_heads import refuse_python
from tokenrouter.runtime.settings import WindowMode
from tokenrouter.runtime.turns import share_of_cores
from tokenrouter.server.admission import Limits, Work, prepare
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.guided import compiled, guide
from tokenrouter.server.protocol import ChatRequest, CompletionRequest, turns
from tokenrouter.server.stops import StopMatcher
from tokenrouter.server.transcript import Shown, Transcript


@dataclass(eq=False, slots=True)
class Alone:
    """One request that has an engine of its own; iterated once."""

    work: Work
    transcript: Transcript
    engine: Engine
    seconds: float = 0.0  # from submission to the latest token

    def __iter__(self) -> Iterator[Shown]:
        """Yield what each committed token shows; raises RequestRefused."""
        engine, transcript = self.engine, self.transcript
        [job] = self.work.jobs
        started = time.monotonic()
        request = engine.submit(
            job.prompt,
            job.sampling,
            self.work.params,
            self.work.metadata,
            traced=self.work.traced,
        )
        tokens = engine.completions[request].tokens
        fed = 0
        while transcript.finish is None:
            going = engine.step()
            if request in engine.refusals:
                raise RequestRefused(engine.refusals[request])
            while fed < len(tokens) and transcript.finish is None:
                self.seconds = time.monotonic() - started
                yield transcript.feed(tokens[fed])
                fed += 1
            assert going or transcript.finish, "the engine stopped before its request was finished"
        engine.abort(request)


def begin(
    plan: Plan,
    base: Path,
    request: ChatRequest | CompletionRequest,
    *,
    dtype: str | None,
    deterministic: bool,
    allow_python: bool = False,
    threads: int | None,
    windows: WindowMode = "fixed",
) -> Alone:
    """Load the plan's models and return the request, ready to be iterated; raises TokenRouterError."""
    refuse_python(plan, allowed=allow_python)
    tokenizer = TextTokenizer.of(plan, base)
    if isinstance(request, ChatRequest):
        prompt, field = tokenizer.apply_chat_template(turns(request.messages)), "messages"
    else:
        prompt, field = tokenizer.encode(str(request.prompt)), "prompt"
    # All that can be refused is, before the weights are read.
    grammar = _grammar(plan, tokenizer, request)
    work = prepare(
        plan,
        Limits(plan.tokenizer.size, plan.longest),
        request,
        [prompt],
        request.max_tokens,
        field,
        grammar,
    )
    torch.set_num_threads(threads or share_of_cores(len(plan.models)))
    engine = Engine(
        plan,
        base,
        dtype=dtype,
        deterministic=deterministic,
        allow_python=allow_python,
        windows=windows,
    )
    hidden = tokenizer.special_ids | set(plan.tokenizer.eos_ids)
    detokenizer = Detokenizer(tokenizer.id_to_bytes, hidden)
    return Alone(work, Transcript(detokenizer, StopMatcher(work.stops)), engine)


def _grammar(plan: Plan, tokenizer: TextTokenizer, request: ChatRequest | CompletionRequest) -> str:
    """Return the grammar that the answer must follow, compiled once to see that it can be; raises TokenRouterError."""
    asked = guide(request)
    if asked is None:
        return ""
    return compiled(asked, Grammars(lambda: tokenizer, plan.tokenizer.size, plan.tokenizer.eos_ids))
