"""Prompts on which a policy is counted: the shipped set, or a user's file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokenrouter.profile.io import ProfileError

FILE = Path(__file__).with_name("prompts.txt")


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str


def shipped() -> list[str]:
    """Return the prompts that come with the program: one a line."""
    return [line for line in FILE.read_text(encoding="utf-8").splitlines() if line]


def read_prompts(path: Path) -> list[str]:
    """Return the prompts of a file of JSON lines; raises ProfileError."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompts.append(msgspec.json.decode(line, type=_Line).prompt)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProfileError(
                f'{path}, line {number}: not a prompt: {error}; write {{"prompt": "..."}} on each line'
            ) from None
    if not prompts:
        raise ProfileError(f"{path}: holds no prompt")
    return prompts
