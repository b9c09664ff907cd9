"""Frames: what one step has to say to a receiver travels together, in order, and what is none of ours is thrown away."""

import logging

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.runtime.messages import Abort, Active, Lost, encode
from tokenrouter.runtime.transport import (
    FRONT_END,
    FULL_BYTES,
    MOST_BYTES,
    Sockets,
    endpoint,
    framed,
    parted,
)

KEY = b"0123456789abcdef"
MESSAGES = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


@pytest.fixture
def receivers(tmp_path):
    """Bare sockets of the front end and of model 1, and the transport of model 0."""
    context = zmq.Context()
    bare = {}
    for address in (FRONT_END, 1):
        bare[address] = context.socket(zmq.PULL)
        bare[address].bind(endpoint(tmp_path, address))
        bare[address].setsockopt(zmq.RCVTIMEO, 60_000)
    sockets = Sockets(0, {at: endpoint(tmp_path, at) for at in (FRONT_END, 0, 1)}, KEY)
    yield bare, sockets
    sockets.close()
    context.destroy(linger=0)


def test_what_was_laid_by_for_a_receiver_goes_in_one_frame_and_in_order(receivers):
    bare, sockets = receivers
    to_model = [Active(n=3), Abort(request=1)]
    to_front = [Lost(request=at, model=0) for at in range(3)]

    for message in to_front:
        sockets.keep(FRONT_END, message)
    for message in to_model:
        sockets.keep(1, message)
    sockets.flush()
    sockets.send(1, Active(n=9))

    assert parted(bare[1].recv(), KEY) == [encode(message) for message in to_model]
    assert parted(bare[FRONT_END].recv(), KEY) == [encode(message) for message in to_front]
    assert parted(bare[1].recv(), KEY) == [encode(Active(n=9))]


def test_what_was_laid_by_goes_before_what_is_sent_at_once(receivers):
    bare, sockets = receivers

    sockets.keep(1, Active(n=1))
    sockets.send(1, Active(n=2))

    assert parted(bare[1].recv(), KEY) == [encode(Active(n=1)), encode(Active(n=2))]


def test_much_that_was_laid_by_does_not_wait_for_more(receivers):
    bare, sockets = receivers
    long = Lost(request=1, model=0)
    n = FULL_BYTES // len(encode(long)) + 1

    for _ in range(n):
        sockets.keep(FRONT_END, long)

    assert len(parted(bare[FRONT_END].recv(), KEY)) == n


@given(MESSAGES)
def test_the_messages_of_a_frame_come_out_as_they_went_in(messages):
    assert parted(framed(KEY, messages), KEY) == messages


@given(MESSAGES, st.data())
def test_of_a_frame_that_was_cut_only_whole_messages_are_taken(messages, data):
    frame = framed(KEY, messages)
    cut = frame[: data.draw(st.integers(len(KEY), len(frame) - 1))]

    found = parted(cut, KEY)

    assert found == messages[: len(found)]
    assert len(found) < len(messages)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "does not begin with the key"),
        (framed(b"another key is 1", [b"x"]), "does not begin with the key"),
        (KEY, "there is none behind the key"),
        (framed(KEY, [b"whole", b"half"])[:-1], "it ends within a message"),
        (framed(KEY, [b"whole"]) + b"\0\0", "it ends within a message"),
        (framed(KEY, [bytes(MOST_BYTES)]), "more than"),
    ],
)
def test_a_frame_that_is_none_of_ours_is_told_with_one_line(caplog, frame, why):
    with caplog.at_level(logging.WARNING, logger="tokenrouter"):
        parted(frame, KEY)

    assert len(caplog.records) == 1
    assert why in caplog.text
