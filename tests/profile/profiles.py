"""A profile by hand, of a plan of two models."""

import msgspec

from tokenrouter.profile.structs import (
    Figure,
    Machine,
    ModelTimes,
    Move,
    Profile,
    Slowed,
    StepTime,
    Ways,
)

replace = msgspec.structs.replace


def figure(ms):
    return Figure(mean=ms, median=ms, low=ms * 0.9, high=ms * 1.1, n=9)


def times(plan, at, idle, busy):
    """L(b) = idle * (1 + b) at both contexts, `busy` times as slow beside the other."""
    model = plan.models[at]
    steps = [
        StepTime(batch=b, context=context, idle=figure(idle * (1 + b)))
        for context in (64, 512)
        for b in (1, 2, 4)
    ]
    slowed = [Slowed(by=1 - at, batch=b, step=figure(idle * (1 + b) * busy)) for b in (1, 4)]
    return ModelTimes(
        name=model.name,
        fingerprint=model.fingerprint,
        dtype="float32",
        steps=steps,
        slowed=slowed,
    )


def in_turn(profile, later=(1.5, 1.25)):
    """The same where models step in turn: a step after the other's takes so many times as long."""
    models = [
        replace(
            model,
            steps=[replace(st, after=figure(st.idle.mean * factor)) for st in model.steps],
            slowed=[],
        )
        for model, factor in zip(profile.models, later, strict=True)
    ]
    return replace(profile, models=models, machine=replace(profile.machine, in_turn=True))


def profile_of(
    plan, moves=((0, 0, False, 1, 30), (0, 1, True, 0, 70), (1, 0, True, 0, 30)), busy=(2.0, 1.25)
):
    return Profile(
        profile_version=2,
        producer="tests",
        created="2026-11-29T12:00:00Z",
        program_hash=plan.program_hash,
        max_active=plan.windows.max_active,
        seconds=1.0,
        machine=Machine(
            processor="a machine",
            cores=2,
            threads=1,
            device="cpu",
            system="Linux",
            python="3.11",
            torch="2",
            load=0.0,
        ),
        models=[times(plan, 0, 2.0, busy[0]), times(plan, 1, 8.0, busy[1])],
        ways=Ways(
            prompts="shipped",
            requests=10,
            tokens=1000,
            ended=4,
            max_tokens=128,
            temperature=0.0,
            start=[10],
            moves=[Move(model=m, rule=r, keep=k, to=t, n=n) for m, r, k, t, n in moves],
        ),
    )
