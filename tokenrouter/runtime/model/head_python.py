"""The escape hatch for heads that are still research: a Python class, imported only where the user has allowed it.

    class Mine(torch.nn.Module):
        def forward(self, hidden, logits, candidate): ...     # [B, H], [B, V], [B] -> [B] in [0, 1]

It is made without arguments. Parts that the policy's `reads` does not name come as None. A row's value must be a pure function of
that row; nothing here can check that, and every analysis takes such a head for opaque.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from tokenrouter.errors import TokenRouterError
from tokenrouter.runtime.model.head import HeadFunction, HeadInputs


class PythonHeadError(TokenRouterError):
    """A head's Python class cannot be used; the message is one line."""


def load_python_head(name: str, target: str) -> HeadFunction:
    """Return the head of `package.module:Class`; raises PythonHeadError. This runs the module's code."""
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
        head: Any = getattr(module, class_name)()
    except Exception as error:
        raise PythonHeadError(
            f"head `{name}`: cannot make `{target}`: {_line(error)}; it must be importable (see PYTHONPATH) "
            "and its class take no arguments"
        ) from error
    if not callable(head):
        raise PythonHeadError(f"head `{name}`: `{target}` makes nothing that can be called")
    if isinstance(head, torch.nn.Module):
        head.train(False)

    def apply(inputs: HeadInputs) -> Tensor:
        try:
            found = head(inputs.hidden, inputs.logits, inputs.token)
        except Exception as error:
            raise PythonHeadError(f"head `{name}`: `{target}` failed: {_line(error)}") from error
        parts = (inputs.hidden, inputs.logits, inputs.token)
        rows = next(len(part) for part in parts if part is not None)
        if not isinstance(found, Tensor) or found.shape != (rows,):
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise PythonHeadError(
                f"head `{name}`: `{target}` gave {got} for {rows} rows; one probability a row is needed"
            )
        return torch.nan_to_num(found.detach(), nan=0.0).clamp(0.0, 1.0)

    return apply


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
