"""What a model on disk can get wrong; the root is `tokenrouter.errors.TokenRouterError`."""

from __future__ import annotations

from tokenrouter.errors import TokenRouterError


class ModelError(TokenRouterError):
    """A model cannot be found, read or run; `str(error)` is one line that says why and how to mend it."""
