"""Chat templates: the Jinja text that a model's authors ship, found with the model and rendered in a sandbox."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

from tokenrouter.models import dummy
from tokenrouter.models.errors import ModelError
from tokenrouter.models.files import read_json
from tokenrouter.models.gguf import GgufHead, read_gguf
from tokenrouter.models.locate import Located
from tokenrouter.models.vocabulary import gguf_of, gguf_tokens


class ChatTemplate:
    """A template and the special tokens that it may name."""

    def __init__(self, text: str, specials: dict[str, str]) -> None:
        self.text = text
        self.specials = specials
        self._compiled: Any = None

    def render(self, messages: list[dict[str, str]], *, answers: bool = True) -> str:
        """Return the prompt of a conversation, with `answers` up to where the answer begins; raises ModelError."""
        from jinja2 import TemplateError  # noqa: PLC0415 the compiler reads templates and renders none

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
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

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


def read_template(located: Located) -> ChatTemplate | None:
    """Return a model's chat template; None where it has none."""
    gguf = gguf_of(located)
    if gguf is not None:
        return _gguf_template(read_gguf(gguf))
    if located.kind == "dummy" and dummy.is_plain(located.path):
        return ChatTemplate(dummy.TEMPLATE, {})
    config_path = located.path / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    file = located.path / "chat_template.jinja"
    text = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(text, list):  # several by name
        by_name = {each.get("name"): each.get("template") for each in text}
        text = by_name.get("default")
    if not isinstance(text, str):
        return None
    specials = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            specials[name] = content
    return ChatTemplate(text, specials)


def _gguf_template(head: GgufHead) -> ChatTemplate | None:
    text = head.metadata.get("tokenizer.chat_template")
    if not isinstance(text, str):
        return None
    tokens, _ = gguf_tokens(head)
    specials = {}
    for name in ("bos", "eos", "unknown", "padding"):
        id_ = head.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(id_, int) and id_ < len(tokens):
            specials[{"unknown": "unk", "padding": "pad"}.get(name, name) + "_token"] = tokens[id_]
    return ChatTemplate(text, specials)
