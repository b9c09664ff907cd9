"""The published JSON Schema of a profile; `profile.schema.json` beside this file is its copy.

`python -m tokenrouter.profile.schema` writes the copy again; a test compares the two.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tokenrouter.profile.structs import PROFILE_VERSION, Profile

FILE = Path(__file__).with_name("profile.schema.json")


def text() -> str:
    """Return the schema (JSON Schema 2020-12) as it is shipped."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tokenrouter profile, version {PROFILE_VERSION}",
        **msgspec.json.schema(Profile),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
