"""One request as one subserver holds it: its tokens here, how far they are cached, and whose turn it is.

It knows nothing of torch, sockets or clocks. A sequence is the prompt followed by the output; `tokens` may end before
the request's real end where another model owns it.

    0 ........ cached ........ target ........ len(tokens)
    |  in KV  |    unseen     |  not wanted yet  |

INVARIANT: cached <= len(pages) * page_size, and a sequence that is owned here has at least one unseen token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokenrouter.runtime.messages import Admit, RouteState, Sampling

if TYPE_CHECKING:
    from tokenrouter.runtime.shaping import Shaper


@dataclass(eq=False, slots=True)
class Sequence:
    """The live state of a request at one subserver."""

    request: int
    n_prompt: int
    tokens: list[int]
    sampling: Sampling
    params: list[float]
    metadata: dict[str, str | float | bool]
    state: RouteState  # as of the last hand-off or step here
    epochs: list[int]
    seen: list[int]  # by model: length of the sequence that each subserver has been sent
    traced: bool
    rank: int = 0  # lower ones go first; by request where they are equal
    scored: bool = False  # whether the prompt's log probabilities are told from here
    owned: bool = False  # whether this subserver decides the next position
    parked: bool = True  # while away: whether pages are kept for the return
    read_ahead: int = 0  # tokens to cache although another model owns the request
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    looked: bool = False  # whether the prefix cache was asked for it
    prefilling: bool = False  # owned here and far from the gate: a prompt, or a prefix read again
    barred: bool = False  # from batches, until it is known what its grammar lets follow
    shaper: Shaper | None = None  # where penalties, biases or a grammar are asked for
    admitted_ms: float = 0.0  # on the subserver's clock, at which it was first admitted anywhere
    due_since: float = 0.0  # ms on the subserver's clock at which it came to the gate

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among the requests of a subserver."""
        return self.rank, self.request

    @property
    def start(self) -> int:
        """The first position of the next extend.

        A request that comes back to the position that this model has just scored brings nothing new: its last token
        is read once more, for the logits.
        """
        return min(self.cached, len(self.tokens) - 1) if self.owned else self.cached

    @property
    def unseen(self) -> int:
        """Tokens that the next extends must read."""
        if self.owned:
            return len(self.tokens) - self.start
        return max(0, self.read_ahead - self.cached)

    @property
    def n_output(self) -> int:
        """Output tokens known here."""
        return len(self.tokens) - self.n_prompt


def admitted(message: Admit, model: int, *, eager: bool) -> Sequence:
    """Return the sequence of a request that has just been admitted."""
    tokens = [*message.prompt, *message.output]
    owned = message.state.owner == model
    return Sequence(
        request=message.request,
        n_prompt=len(message.prompt),
        tokens=tokens,
        sampling=message.sampling,
        params=message.params,
        metadata=message.metadata,
        state=message.state,
        epochs=message.epochs,
        seen=[len(tokens)] * len(message.epochs),
        traced=message.traced,
        rank=message.rank,
        scored=owned and not message.output and message.sampling.prompt_logprobs is not None,
        owned=owned,
        # The last token is left for the hand-off, which needs its logits.
        read_ahead=len(tokens) - 1 if eager and not owned else 0,
    )
