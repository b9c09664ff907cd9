"""What a rule and a model come to: how often a rule is expected to fire, and how large the model is that is named.

A model's size is read from the headers of its files, where they are on this machine; never from its weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tokenrouter.compiler import chain
from tokenrouter.compiler.analyse import analysed
from tokenrouter.compiler.emit import WIDTH
from tokenrouter.diagnostics import PolicyError
from tokenrouter.dsl import hir
from tokenrouter.errors import TokenRouterError
from tokenrouter.lsp.book import Document
from tokenrouter.models import count_parameters, locate, read_config, read_vocabulary
from tokenrouter.plan.show import size


def expected(document: Document, start: int) -> list[str]:
    """Return how often the rule that begins at an offset is expected to fire, one line a model where it stands."""
    resolved = document.study.resolved
    for policy in resolved.policies:
        rules = [rule.span.start for block in policy.blocks for rule in block.rules]
        if start in rules or start in [rule.span.start for rule in policy.start]:
            try:
                auto, _ = analysed(replace(resolved, policies=(policy,)))
            except PolicyError:
                return []
            lines = []
            for state, shares in zip(auto.states, chain.shares(auto), strict=True):
                for rule, share in zip(state.rules, shares, strict=True):
                    if rule.span.start == start and rule.source != "fallback":
                        lines.append(f"expected on {share:.0%} of the decisions at `{state.model}`")
            for first, share in zip(auto.start, chain.start_shares(auto), strict=True):
                if first.span.start == start:
                    lines.append(f"expected on {share:.0%} of the requests")
            return [f"{line}, from assumed probabilities" for line in lines]
    return []


def weighed(model: hir.Model, base: str) -> str:
    """Return the size of a model that is on this machine, or why it is not known."""
    folder = Path(os.path.abspath(base))
    try:
        return ", ".join(_parts(model.use, folder, model.dtype))
    except TokenRouterError as error:
        return f"size unknown: {error}"
    except OSError as error:
        return f"size unknown: {error.strerror}"


@lru_cache(maxsize=32)
def _facts(use: str, folder: Path, stamp: float) -> tuple[int, int, int, int, int]:
    """Return parameters, layers, rows and widths; `stamp` is when the files were last changed."""
    located = locate(use, folder)
    config = read_config(located)
    kv = 2 * config.layers * config.kv_heads * config.head_dim
    return (
        count_parameters(located),
        config.layers,
        config.context,
        read_vocabulary(located).size,
        kv,
    )


def _parts(use: str, folder: Path, dtype: str) -> Iterator[str]:
    path = locate(use, folder).path
    parameters, layers, context, ids, kv = _facts(use, folder, path.stat().st_mtime)
    width = WIDTH[dtype]
    if parameters:
        yield f"{parameters:,} parameters, {size(parameters * width)} as {dtype}"
    yield f"{layers} layers"
    yield f"a vocabulary of {ids:,} ids"
    yield f"up to {context:,} tokens, {size(kv * width)} of KV each"
