"""How ranks share a model: whole heads and equal parts of the feed-forward, so that a layer needs two sums and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.models.config import ModelConfig


def obstacle(config: ModelConfig, ranks: int) -> str | None:
    """Return why so many ranks cannot share a model; None where they can."""
    if not config.is_own:
        return f"`{config.family}` runs through transformers, which keeps it whole"
    parts = {
        "key/value heads": config.kv_heads,
        "heads": config.heads,
        "rows of its feed-forward": config.intermediate,
    }
    for what, n in parts.items():
        if n % ranks:
            return f"its {n} {what} are no multiple of {ranks}"
    return None


def share(config: ModelConfig, ranks: int) -> ModelConfig:
    """Return what one of the ranks has of a model: its heads and its part of the feed-forward, over the whole width."""
    assert obstacle(config, ranks) is None, (config, ranks)
    return replace(
        config,
        heads=config.heads // ranks,
        kv_heads=config.kv_heads // ranks,
        intermediate=config.intermediate // ranks,
    )
