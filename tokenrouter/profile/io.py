"""Read, check and write profiles; every fault is one line that says what, where and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import msgspec

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.layout import layout
from tokenrouter.plan.structs import Plan
from tokenrouter.profile.structs import PROFILE_VERSION, Figure, ModelTimes, Profile, Ways
from tokenrouter.version import __version__

AGAIN = "run `trc profile` again"


class ProfileError(TokenRouterError):
    """A profile cannot be read or written, or is none of this plan; the message is one line."""


class _Head(msgspec.Struct):
    profile_version: int


def read(path: str | Path) -> Profile:
    """Return the profile in a file, checked; raises ProfileError."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file; `trc profile PLAN -o {path}` makes it") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    return decode(data, str(path))


def decode(data: bytes, name: str = "profile") -> Profile:
    """Return the checked profile in JSON text; raises ProfileError, whose message begins with `name`."""
    try:
        version = msgspec.json.decode(data, type=_Head).profile_version
    except msgspec.ValidationError:
        raise ProfileError(f"{name}: not a profile, since it has no `profile_version`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{name}: not JSON: {error}; {AGAIN}") from None
    if version != PROFILE_VERSION:
        raise ProfileError(
            f"{name}: profile version {version}; tokenrouter {__version__} reads version {PROFILE_VERSION}; {AGAIN}"
        )
    try:
        profile = msgspec.json.decode(data, type=Profile)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        place = f" at `{where}" if where else ""
        raise ProfileError(f"{name}: not a valid profile: {_lower(what)}{place}") from None
    problem = next(iter(verify(profile)), None)
    if problem is not None:
        raise ProfileError(f"{name}: the profile does not hold together: {problem}; {AGAIN}")
    return profile


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def check_fits(profile: Profile, plan: Plan, name: str) -> None:
    """Raise ProfileError unless the profile was measured of what `plan` says."""
    measured = [model.name for model in profile.models]
    meant = [model.name for model in plan.models]
    if measured != meant:
        raise ProfileError(
            f"{name}: measured the models {', '.join(measured)}, but the policy has {', '.join(meant)}; {AGAIN}"
        )
    for times, model in zip(profile.models, plan.models, strict=True):
        if times.fingerprint != model.fingerprint:
            raise ProfileError(f"{name}: measured another model as `{model.name}`; {AGAIN}")
    if profile.program_hash != plan.program_hash:
        raise ProfileError(
            f"{name}: measured program {profile.program_hash[:16]}, but this policy, its dials included, compiles to "
            f"{plan.program_hash[:16]}; {AGAIN}"
        )
    rules = len(plan.start.rules)
    if len(profile.ways.start) != rules:
        raise ProfileError(
            f"{name}: counts {len(profile.ways.start)} start rules, but the policy has {rules}; {AGAIN}"
        )


def verify(profile: Profile) -> Iterator[str]:
    """Yield what is wrong with a profile, one line each."""
    n = len(profile.models)
    if n == 0:
        yield "`models` is empty"
    for times in profile.models:
        if not times.steps:
            yield f"`{times.name}` has no step times"
        for step in times.steps:
            if step.batch < 1 or step.context < 1:
                yield f"`{times.name}` has a step of {step.batch} requests and {step.context} tokens"
        yield from _times(times, n)
        yield from _in_turn(times, profile.machine.in_turn)
    yield from _ways(profile.ways, n)


def _times(times: ModelTimes, n: int) -> Iterator[str]:
    figures = [step.idle for step in times.steps] + [slow.step for slow in times.slowed]
    figures += [step.busy for step in times.steps if step.busy is not None]
    figures += [step.after for step in times.steps if step.after is not None]
    figures += [read.time for read in times.reads]
    if not all(map(_sound, figures)):
        yield f"`{times.name}` has a time that is none"
    lengths = [read.tokens for read in times.reads]
    if min(lengths, default=1) < 1 or lengths != sorted(set(lengths)):
        yield f"`{times.name}` has read prompts of lengths that do not ascend"
    short = min((step.context for step in times.steps), default=0)
    alone = {(step.context, step.batch) for step in times.steps}
    if not all((slow.context or short, slow.batch) in alone for slow in times.slowed):
        yield f"`{times.name}` is slowed at a size of batch at which it was not measured alone"
    if not all(0 <= slow.by < n for slow in times.slowed):
        yield f"`{times.name}` is slowed by a model that is none"


def _in_turn(times: ModelTimes, in_turn: bool) -> Iterator[str]:
    if in_turn and (times.slowed or any(step.busy is not None for step in times.steps)):
        yield f"`{times.name}` was measured beside another model, but models step in turn"
    if not in_turn and any(step.after is not None for step in times.steps):
        yield f"`{times.name}` has steps after another model's, but models do not step in turn"


def _ways(ways: Ways, n: int) -> Iterator[str]:
    if ways.requests < 1 or ways.tokens < 1:
        yield "`ways` counts no request"
    for name, moves in (("moves", ways.moves), ("first", ways.first)):
        for move in moves:
            if not 0 <= move.model < n or not (move.to is None or 0 <= move.to < n) or move.n < 1:
                yield f"`ways.{name}` has an entry that is none: model {move.model} to {move.to}, {move.n} times"
    counted = {(move.model, move.rule, move.keep, move.to) for move in ways.moves}
    for move in ways.first:
        if (move.model, move.rule, move.keep, move.to) not in counted:
            yield f"`ways.first` counts a way that `ways.moves` does not: model {move.model} to {move.to}"
    for stays in ways.stays:
        known = 0 <= stays.home < n and 0 <= stays.lender < n
        if not known or min(stays.lengths, default=0) < 0:
            yield "`ways.stays` has an entry that is none"


def _sound(figure: Figure) -> bool:
    times = (figure.low, figure.median, figure.high)
    sound = all(isfinite(t) and t > 0 for t in (*times, figure.mean))
    return sound and sorted(times) == list(times)


def encode(profile: Profile) -> str:
    """Return a profile as text."""
    return layout(msgspec.to_builtins(profile))


def write(profile: Profile, path: str | Path) -> None:
    """Write a profile; raises ProfileError."""
    try:
        Path(path).write_text(encode(profile), encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from None
