"""A plan as a page of text."""

import msgspec

from tokenrouter.plan.hash import seal
from tokenrouter.plan.show import show


def test_a_plan_that_uses_every_part_can_be_read(plan, golden):
    golden(show(seal(plan)))


def test_a_plan_that_was_edited_by_hand_says_so(plan):
    windows = msgspec.structs.replace(plan.windows, max_wait_ms=5.0)
    edited = msgspec.structs.replace(seal(plan), windows=windows)

    assert "(edited by hand)" in show(edited)
    assert "(edited by hand)" not in show(seal(plan))
