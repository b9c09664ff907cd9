"""The joint split of the KV budget: the largest number of tokens that fits every model's pool at once.

Pools of equal token capacity are what pending requests need: a request keeps its pages on every model that it has
visited, so the model with the fewest tokens bounds them all.
"""

from __future__ import annotations

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Memory, Model

PAGE_SIZE = 16
BUDGET = 1 << 30  # bytes, where none is given


class BudgetError(TokenRouterError):
    """The KV budget is too small for a single page of every model."""


def split(models: list[Model], budget: int, max_active: int) -> Memory:
    """Return the memory part of a plan; raises BudgetError."""
    token = sum(model.kv_bytes_per_token for model in models)
    # More than this many tokens can never be in use: every active request at its longest.
    longest = max_active * min(model.context for model in models)
    fits = budget // token if token else longest
    pages = min(fits, longest + PAGE_SIZE - 1) // PAGE_SIZE
    if pages < 1:
        need = token * PAGE_SIZE
        raise BudgetError(
            f"a KV budget of {budget} bytes does not hold one page of {PAGE_SIZE} tokens, which takes {need} bytes "
            "over all models; raise `--kv-budget`"
        )
    return Memory(page_size=PAGE_SIZE, budget_bytes=budget, capacity_tokens=pages * PAGE_SIZE)
