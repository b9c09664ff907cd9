"""The two hashes of a plan: SHA-256 over RFC 8785 canonical JSON of the fields that `coverage` names.

A field that equals its struct's default is left out, so that a new field, which always has a default, changes no old
hash. INVARIANT: same policy, same models: same `program_hash`, on any machine and from either spelling.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import msgspec
import rfc8785

from tokenrouter.plan.coverage import COVERED, WHOLE, Part
from tokenrouter.plan.layout import Json
from tokenrouter.plan.structs import Plan

Which = Literal["program", "tuning"]


class Hashes(NamedTuple):
    """Both hashes of one plan, in hexadecimal."""

    program: str
    tuning: str


def hashes(plan: Plan) -> Hashes:
    """Return the hashes of what the plan holds now, whatever its hash fields say."""
    return Hashes(_digest(plan, "program"), _digest(plan, "tuning"))


def seal(plan: Plan) -> Plan:
    """Return the plan with its own hashes written into it."""
    program, tuning = hashes(plan)
    return msgspec.structs.replace(plan, program_hash=program, tuning_hash=tuning)


def _digest(plan: Plan, which: Which) -> str:
    record = {"hash": f"tokenrouter {which} 1", "plan": _covered(plan, which)}
    return hashlib.sha256(rfc8785.dumps(record)).hexdigest()


def _covered(value: object, which: Which) -> Json:
    """Return the part of a value that one hash covers, as JSON."""
    if isinstance(value, msgspec.Struct):
        return _fields(value, which)
    if isinstance(value, list):
        return [_covered(item, which) for item in value]
    assert value is None or isinstance(value, (bool, int, float, str)), type(value)
    return value


def _fields(value: msgspec.Struct, which: Which) -> Json:
    config = value.__struct_config__
    out: dict[str, Json] = {}
    if config.tag is not None:
        assert isinstance(config.tag_field, str) and isinstance(config.tag, str), config
        out[config.tag_field] = config.tag
    kind = type(value)
    table = COVERED.get(kind)
    assert table is not None or kind in WHOLE, f"no hash knows of {kind.__name__}"
    for field in msgspec.structs.fields(kind):
        part: Part = "both" if table is None else table[field.name]
        item = getattr(value, field.name)
        if part in (which, "both") and item != _default(field):
            out[field.name] = _covered(item, which)
    return out


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
