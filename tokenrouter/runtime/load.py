"""From a plan and an index to a subserver with its weights: what a process and the in-process engine have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Runner
from tokenrouter.runtime.subserver import Subserver
from tokenrouter.runtime.transport import Send
from tokenrouter.runtime.vocabulary import Vocabulary


def load_subserver(
    plan: Plan,
    model: int,
    send: Send,
    now_ms: Callable[[], float],
    *,
    base: Path,
    dtype: str | None = None,
    deterministic: bool = False,
    runner: Runner | None = None,
    epoch: int = 1,
    max_tokens: int = 512,
) -> Subserver:
    """Return a subserver that is ready to announce itself."""
    assert runner is not None
    router = Router(plan, model, Vocabulary(plan.tokenizer.size))
    return Subserver(plan, model, runner, router, send, now_ms, epoch=epoch, max_tokens=max_tokens)
