"""What `trc top` shows: two looks at a server as lines of text, 80 columns wide."""

from __future__ import annotations

from typing import NamedTuple

from tokenrouter.server.scrape import Span

NOTHING = "-"
WIDTH = 80
_BOLD, _ALARM, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"


class Column(NamedTuple):
    """A figure of each model."""

    title: str
    width: int


NAME_WIDTH = 14
COLUMNS = (
    Column("running", 8),
    Column("waiting", 8),
    Column("pending", 8),
    Column("batch", 6),
    Column("window", 7),
    Column("tokens/s", 9),
    Column("KV", 5),
    Column("hand/s", 7),
    Column("preempt", 8),
)
assert NAME_WIDTH + sum(column.width for column in COLUMNS) == WIDTH


def frame(url: str, span: Span, *, colour: bool) -> list[str]:
    """Return the lines of one view."""
    now, models = span.now, span.now.models()
    up = sum(bool(now.value("model_up", model=model)) for model in models)
    first = span.mean("time_to_first_token_seconds")
    head = [
        f"{url}  {up} of {len(models)} models up",
        f"{_whole(now.value('requests_running'))} running, "
        f"{_whole(now.value('requests_waiting'))} waiting; "
        f"{_tenth(span.rate('tokens_total') or 0.0)} tokens/s, "
        f"{_tenth(span.rate('handoffs_total') or 0.0)} hand-offs/s; "
        f"first token {NOTHING if first is None else f'{1e3 * first:.0f} ms'}",
    ]
    title = "model".ljust(NAME_WIDTH) + "".join(c.title.rjust(c.width) for c in COLUMNS)
    return [
        *(line[:WIDTH] for line in head),
        "",
        f"{_BOLD}{title}{_PLAIN}" if colour else title,
        *(_row(span, model, colour=colour) for model in models),
    ]


def _row(span: Span, model: str, *, colour: bool) -> str:
    name = model if len(model) < NAME_WIDTH else model[: NAME_WIDTH - 2] + "~"
    if not span.now.value("model_up", model=model):
        line = f"{name.ljust(NAME_WIDTH)} down"
        return f"{_ALARM}{line}{_PLAIN}" if colour else line
    now = span.now
    kv = now.value("kv_cache_usage_ratio", model=model)
    cells = (
        _whole(now.value("model_running", model=model)),
        _whole(now.value("gate_waiting", model=model)),
        _whole(now.value("model_pending", model=model)),
        _tenth(span.mean("batch_size", model=model)),
        _whole(now.value("window", model=model)),
        _tenth(span.rate("tokens_total", model=model) or 0.0),
        NOTHING if kv is None else f"{kv:.0%}",
        _tenth(span.rate("handoffs_total", model=model) or 0.0),
        _whole(now.value("preemptions_total", model=model)),
    )
    columns = zip(cells, COLUMNS, strict=True)
    return name.ljust(NAME_WIDTH) + "".join(f"{cell:>{c.width}}" for cell, c in columns)


def _whole(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.0f}" if value < 9999.5 else _short(value)


def _tenth(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f}" if value < 999.95 else _whole(value)


def _short(value: float) -> str:
    """Return a large figure in four characters."""
    for unit in "kMG":
        value /= 1e3
        if value < 999.5:
            return f"{value:.0f}{unit}"
    return "many"
