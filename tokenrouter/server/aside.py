"""Work that grows with a request's size leaves the event loop, so that no other client waits for it.

Short work stays: a thread costs more than it. What runs aside must let other threads run, so it is Python or a library
that lets go of the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 4096  # characters, tokens or bytes of JSON


async def aside(size: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the call returns; one of a large size is made in a thread."""
    if size < LARGE:
        return call(*args, **kwargs)
    return await asyncio.to_thread(call, *args, **kwargs)
