"""Structs of task graphs, which a subserver walks as they stand. Import them from `tokenrouter.plan.structs`.

Ids are unique within one graph.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Admit(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="admit",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A client request comes in; `eager` reads its prompt at once also where another model owns it."""

    id: str  # unique in its graph
    prefill: Literal["eager", "lazy"]  # as in the model


class Resume(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="resume",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A peer's message brings a request and the tokens that are new here."""

    id: str  # unique in its graph


class Gate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="gate",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The batching window: `Windows.table[model][N - 1]` requests wait before a launch."""

    id: str  # unique in its graph


class Extend(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="extend",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The unseen tokens, one or many, go through the model."""

    id: str  # unique in its graph
    hidden: bool  # whether the last hidden state is returned, for a head


class Sample(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="sample",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A candidate a request. Leaves by `borrowed` or `own`."""

    id: str  # unique in its graph


class Signals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="signals",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The nodes of this model's program are evaluated."""

    id: str  # unique in its graph


class Route(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="route",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The first rule that holds gives the action. Leaves by `keep` or `drop`."""

    id: str  # unique in its graph


class CountDown(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="count_down",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """One token of a borrowed stay is spent; at the end, or where its `until` holds, the request turns home."""

    id: str  # unique in its graph


class Commit(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="commit",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The candidate joins the output. Leaves by `stay`, `leave` or `ended`."""

    id: str  # unique in its graph


class Park(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="park",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The request is marked pending; its pages and its place stay."""

    id: str  # unique in its graph


class Send(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="send",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The suffix that the peer has not seen goes to it."""

    id: str  # unique in its graph
    peers: list[int]  # models that this graph may send to, ascending


class Finish(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="finish",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The request ends and its pages are released."""

    id: str  # unique in its graph


Task = (
    Admit
    | Resume
    | Gate
    | Extend
    | Sample
    | Signals
    | Route
    | CountDown
    | Commit
    | Park
    | Send
    | Finish
)

Label = Literal["next", "own", "borrowed", "keep", "drop", "stay", "leave", "ended"]


class Edge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that leave task `source` by `label` go on to task `target`."""

    source: str  # task id
    label: Label  # how requests leave
    target: str  # task id


class Subserver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task graph of one model."""

    tasks: list[Task]  # the first is `admit`
    edges: list[Edge]  # where requests go on to
