"""The published JSON Schema of a plan, made from the structs; `plan.schema.json` beside this file is its copy.

`python -m tokenrouter.plan.schema` writes the copy again; a test compares the two.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tokenrouter.plan.structs import PLAN_VERSION, Plan

FILE = Path(__file__).with_name("plan.schema.json")


def schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a plan."""
    body = msgspec.json.schema(Plan)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tokenrouter plan, version {PLAN_VERSION}",
        **body,
    }


def text() -> str:
    """Return the schema as it is shipped."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
