"""Chat templates: the Jinja text that a model's authors ship, rendered in a sandbox."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenrouter.models.errors import ModelError


class ChatTemplate:
    """A template and the special tokens that it may name."""

    def __init__(self, text: str, specials: dict[str, str]) -> None:
        self.text = text
        self.specials = specials
        self._compiled: Any = None

    def render(self, messages: list[dict[str, str]], *, answers: bool = True) -> str:
        """Return the prompt of a conversation, with `answers` up to where the answer begins; raises ModelError."""
        if not messages:
            raise ModelError("a conversation needs at least one message")
        try:
            if self._compiled is None:
                self._compiled = _environment().from_string(self.text)
            found = self._compiled.render(
                messages=messages, add_generation_prompt=answers, **self.specials
            )
        except ModelError:
            raise
        except TemplateError as error:
            raise ModelError(f"the model's chat template is wrong: {_line(error)}") from error
        except Exception as error:  # whatever a template does with what it was not made for
            raise ModelError(f"the model's chat template refuses this: {_line(error)}") from error
        assert isinstance(found, str)
        return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _environment() -> Any:
    """Return a sandbox with what templates written for transformers count on."""

    def raise_exception(message: str) -> NoReturn:
        raise ModelError(f"the model's chat template refuses this: {' '.join(message.split())}")

    def tojson(value: Any, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
