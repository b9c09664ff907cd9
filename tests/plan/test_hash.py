"""Each field of the plan changes exactly the hash that its entry in the table names."""

import typing
from types import UnionType

import msgspec
import pytest

from tokenrouter.plan import structs as s
from tokenrouter.plan.coverage import COVERED, OUTSIDE, WHOLE
from tokenrouter.plan.hash import hashes, seal


def structs_of(kind):
    """Return every struct class that a type mentions."""
    found, stack = [], [kind]
    while stack:
        item = stack.pop()
        if isinstance(item, UnionType) or typing.get_origin(item) is not None:
            stack += typing.get_args(item)
        elif isinstance(item, type) and issubclass(item, msgspec.Struct) and item not in found:
            found.append(item)
            stack += [field.type for field in msgspec.structs.fields(item)]
    return found


def places(value, path=()):
    """Yield the path, the owner and the name of every field in a plan that holds no struct."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(type(value)):
            item = getattr(value, field.name)
            yield from places(item, (*path, field.name))
            if not isinstance(item, msgspec.Struct):
                yield (*path, field.name), value, field.name
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def change(value):
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case None:
            return 1
        case []:
            return [7]
        case [*rest, _]:
            return rest


def put(value, path, new):
    step, *rest = path
    if isinstance(value, list):
        copy = list(value)
        copy[step] = put(copy[step], rest, new) if rest else new
        return copy
    inner = put(getattr(value, step), rest, new) if rest else new
    return msgspec.structs.replace(value, **{step: inner})


def expected(plan, path):
    """Return the hashes that a change at a path must show in, by walking the table from the top."""
    part, value = "both", plan
    for step in path:
        if isinstance(value, list):
            value = value[step]
            continue
        own = COVERED[type(value)][step] if type(value) in COVERED else "both"
        if "none" in (part, own):
            return set()
        part = own if part == "both" else part
        value = getattr(value, step)
    return {"program", "tuning"} if part == "both" else {part}


def test_the_table_names_every_struct_and_every_field_of_the_plan():
    assert set(COVERED) | set(WHOLE) | set(OUTSIDE) == set(structs_of(s.Plan))
    for kind, table in COVERED.items():
        assert list(table) == [field.name for field in msgspec.structs.fields(kind)]


def test_a_change_of_any_field_shows_in_exactly_the_hash_that_covers_it(plan):
    before = hashes(plan)
    seen = set()

    for path, owner, name in places(plan):
        after = hashes(put(plan, path, change(getattr(owner, name))))
        changed = {
            which
            for which in ("program", "tuning")
            if getattr(before, which) != getattr(after, which)
        }
        assert changed == expected(plan, path), path
        seen.add(type(owner))

    assert set(structs_of(s.Plan)) - seen == {s.Stay, s.Stop}  # the two without a field


@pytest.mark.parametrize(
    ("path", "which"),
    [
        (("models", 0, "use"), set()),
        (("models", 0, "fingerprint"), {"program"}),
        (("models", 0, "prefill"), {"tuning"}),
        (("programs", 0, "rules", 0, "keep"), {"program"}),
        (("programs", 0, "nodes", 5, "value"), {"program"}),
        (("windows", "table", 1, 2), {"tuning"}),
        (("windows", "objective"), {"program"}),
        (("memory", "budget_bytes"), {"tuning"}),
        (("heads", 0, "file"), set()),
        (("heads", 0, "digest"), {"program"}),
        (("estimates", "cost_per_token"), set()),
        (("provenance", "created"), set()),
    ],
)
def test_what_the_hashes_cover_is_as_the_design_says(plan, path, which):
    owner = plan
    for step in path[:-1]:
        owner = owner[step] if isinstance(step, int) else getattr(owner, step)
    old = owner[path[-1]] if isinstance(path[-1], int) else getattr(owner, path[-1])

    before, after = hashes(plan), hashes(put(plan, path, change(old)))

    assert {w for w in ("program", "tuning") if getattr(before, w) != getattr(after, w)} == which


def test_the_order_of_rules_and_of_operands_is_meaning(plan):
    first, second, *rest = plan.programs[0].rules
    swapped = put(plan, ("programs", 0, "rules"), [second, first, *rest])
    turned = put(plan, ("programs", 0, "nodes", 8, "of"), [7, 3])

    assert len({hashes(p).program for p in (plan, swapped, turned)}) == 3


def test_sealing_writes_the_hashes_and_changes_neither(plan):
    sealed = seal(plan)

    assert (sealed.program_hash, sealed.tuning_hash) == hashes(plan) == hashes(sealed)


def test_the_hash_of_a_known_plan_stays_what_it_was(plan):
    # A change here means that plans in the field no longer compare equal: that needs a new plan version.
    assert hashes(plan).program == (
        "4688cc286e7e6fe6b4f394e6d8f9890ef1baae8f72b17ce194e036a721477b28"
    )
