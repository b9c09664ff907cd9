"""The reference interpreter: one request through a plan with plain `transformers` models, one token at a time.

Everything is recomputed at every step and every number is a Python float, so that it is slow, short and obviously
right. It shares nothing with the runtime but the plan's structs, `Sampling`, and the published definition of the random
numbers; what it says a plan means is what every execution must equal.
"""

from __future__ import annotations

from tokenrouter.runtime.reference.interpreter import Reference
from tokenrouter.runtime.reference.trace import After, Slack, Step, Trace

__all__ = ["After", "Reference", "Slack", "Step", "Trace"]
