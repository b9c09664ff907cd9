"""From a plan and an index to a subserver with its weights: what a process and the in-process engine have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tokenrouter.models import ModelError, fingerprint, locate
from tokenrouter.models.config import read_config
from tokenrouter.models.sharing import obstacle
from tokenrouter.plan.structs import ClassIs, Extend, Model, Plan, TokenIn
from tokenrouter.runtime.evaluate import Head
from tokenrouter.runtime.grammar import Grammars
from tokenrouter.runtime.graphs import Wanted, buckets
from tokenrouter.runtime.heads import load_heads
from tokenrouter.runtime.masks import Masks
from tokenrouter.runtime.model import LanguageModel, load_model
from tokenrouter.runtime.model.native import kernels
from tokenrouter.runtime.model.parallel import Group
from tokenrouter.runtime.python_heads import refuse_python
from tokenrouter.runtime.ranks import Ranks
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Runner
from tokenrouter.runtime.runner import ModelRunner
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.subserver import Subserver
from tokenrouter.runtime.transport import Send
from tokenrouter.runtime.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenrouter.models.tokenizer import TextTokenizer

WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # bytes a value


def load_runner(
    plan: Plan, model: int, settings: Settings, directory: Path | None = None
) -> ModelRunner:
    """Return a model with its weights and its KV pool, its ranks included; raises ModelError and RankLost.

    `directory` is one that only this user can enter, where ranks meet; one is made where there is none.
    """
    if plan.models[model].tensor_parallel == 1:
        return load_part(plan, model, settings)
    check(plan, model, settings)
    ranks = Ranks(plan, model, settings, directory)
    try:
        runner = load_part(plan, model, settings, ranks.group)
        ranks.wait()
        ranks.group.connect(torch.device(settings.device))
    except BaseException:
        ranks.close()
        raise
    runner.ranks = ranks
    return runner


def load_part(
    plan: Plan, model: int, settings: Settings, group: Group | None = None
) -> ModelRunner:
    """Return a model, or what one rank of a group has of it; raises ModelError."""
    check(plan, model, settings)
    if settings.device == "cpu":
        kernels()  # draws need it, however the model runs: it is compiled now, not within a step
    loaded = load_model(
        plan.models[model],
        Path(settings.base),
        dtype=settings.dtype,
        deterministic=settings.deterministic,
        group=group,
        device=torch.device(settings.device),
    )
    return wrap(plan, loaded, model, settings)


def check(plan: Plan, model: int, settings: Settings) -> None:
    """Raise ModelError where a model is another than at compile time, or its ranks cannot share it."""
    meant, base = plan.models[model], Path(settings.base)
    if fingerprint(locate(meant.use, base)) != meant.fingerprint:
        raise ModelError(
            f"model `{meant.name}`: what lies at `{meant.use}` is not what the plan was compiled for "
            "(its config or vocabulary is another); compile the policy again"
        )
    _check_sizes(meant, base)
    if meant.tensor_parallel > 1:
        fault = obstacle(read_config(locate(meant.use, base)), meant.tensor_parallel)
        if fault:
            raise ModelError(
                f"model `{meant.name}` cannot be shared by {meant.tensor_parallel} ranks: {fault}; "
                "compile the policy with another `tensor_parallel`"
            )


def _check_sizes(meant: Model, base: Path) -> None:
    """Raise ModelError where the plan says another size of a model than its config: it was edited by hand."""
    config = read_config(locate(meant.use, base))
    width = WIDTH[meant.dtype]
    sizes = {
        "layers": (meant.layers, config.layers),
        "hidden_size": (meant.hidden_size, config.hidden),
        "kv_bytes_per_token": (
            meant.kv_bytes_per_token,
            2 * config.layers * config.kv_heads * config.head_dim * width,
        ),
    }
    for name, (said, true) in sizes.items():
        if said != true:
            raise ModelError(
                f"model `{meant.name}`: the plan says `{name}` {said}, and the model at `{meant.use}` has {true}; "
                "compile the policy again"
            )


def wrap(
    plan: Plan, model: LanguageModel, index: int = 0, settings: Settings | None = None
) -> ModelRunner:
    """Return a loaded model with a KV pool of the plan's size."""
    memory, settings = plan.memory, settings or Settings()
    return ModelRunner(
        model,
        memory.capacity_tokens,
        memory.page_size,
        plan.tokenizer.size,
        device=settings.device,
        graphs=graphs(plan, index, settings),
    )


def graphs(plan: Plan, model: int, settings: Settings) -> Wanted | None:
    """Return which steps of a model are to be captured; None where none are."""
    on_gpu = settings.device.startswith("cuda")
    if settings.graphs == "off" or (settings.graphs == "auto" and not on_gpu):
        return None
    extends = [t for t in plan.subservers[model].tasks if isinstance(t, Extend)]
    return Wanted(
        buckets(plan.windows.max_active),
        min(m.context for m in plan.models),
        any(task.hidden for task in extends),
    )


def vocabulary(plan: Plan, base: Path) -> Vocabulary:
    """Return the text of every id where a rule asks for it; else nothing is read."""
    nodes = [node for program in plan.programs for node in program.nodes]
    if not any(isinstance(node, (TokenIn, ClassIs)) for node in nodes):
        return Vocabulary(plan.tokenizer.size)
    # Tokenizers take a second to import, and few plans read text.
    from tokenrouter.models.tokenizer import TextTokenizer  # noqa: PLC0415

    tokenizer = TextTokenizer.of(plan, base)
    return Vocabulary(plan.tokenizer.size, tokenizer.id_to_bytes, tokenizer.special_ids)


def grammars(plan: Plan, base: Path) -> Grammars:
    """Return the grammars over a plan's vocabulary, whose tokenizer is read with the first of them."""

    def tokenizer() -> TextTokenizer:
        from tokenrouter.models.tokenizer import TextTokenizer  # noqa: PLC0415

        return TextTokenizer.of(plan, base)

    return Grammars(tokenizer, plan.tokenizer.size, plan.tokenizer.eos_ids)


def capture(runner: Runner, router: Router) -> None:
    """Capture a runner's short steps, with the router in them where it is a kernel."""
    if not isinstance(runner, ModelRunner) or runner.graphs is None:
        return
    if runner.ranks is not None and runner.graphs.prepared:
        return  # the other ranks have captured theirs, once
    # Its kernels need triton, which only those who have one of them have loaded.
    from tokenrouter.runtime.fused import Fused  # noqa: PLC0415

    fused = None
    if Fused.fits(router):
        fused = Fused(router, runner.vocabulary_size, runner.graphs.most, runner.device)
    runner.graphs.prepare(fused)


def _router(
    plan: Plan, model: int, words: Vocabulary, heads: dict[int, Head], settings: Settings
) -> Router:
    """Return a model's route program: a kernel on a GPU where it can be one, torch operations elsewhere."""
    if settings.device.startswith("cuda") and not settings.deterministic:
        # Triton is needed on a GPU only.
        from tokenrouter.runtime.kernel.layout import why_not  # noqa: PLC0415
        from tokenrouter.runtime.kernel.router import CompiledRouter  # noqa: PLC0415

        if why_not(plan, model) is None:
            return CompiledRouter(plan, model, words, heads, settings.device)
    return Router(plan, model, words, heads)


def subserver(
    plan: Plan,
    model: int,
    runner: Runner,
    send: Send,
    now_ms: Callable[[], float],
    *,
    settings: Settings,
    epoch: int = 1,
) -> Subserver:
    """Return a subserver that is ready to announce itself."""
    refuse_python(plan, allowed=settings.allow_python)
    heads = load_heads(plan, model, runner, settings)
    router = _router(plan, model, vocabulary(plan, Path(settings.base)), dict(heads), settings)
    capture(runner, router)
    made = Subserver(
        plan,
        model,
        runner,
        router,
        send,
        now_ms,
        epoch=epoch,
        settings=settings,
    )
    made.masks = Masks(grammars(plan, Path(settings.base)))
    if isinstance(runner, ModelRunner):
        runner.phases = made.phases
    return made
