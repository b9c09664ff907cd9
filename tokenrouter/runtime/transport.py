"""How messages travel: through queues of one process, or through ZeroMQ sockets.

Both carry the same bytes, and both keep the order between one sender and one receiver and promise nothing else. What
arrives is a message that fits the plan, or thrown away with one line in the log; nothing is ever unpickled. A frame between
processes begins with a key that only the processes of one front end know; messages follow, each behind its length, since
what a step has to say to one receiver travels together.
"""

from __future__ import annotations

import hmac
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.messages import (
    ToFrontEnd,
    ToSubserver,
    decode_to_front_end,
    decode_to_subserver,
    encode,
)

log = logging.getLogger("tokenrouter")

FRONT_END = -1  # the front end's address; a subserver's is the index of its model
Message = ToSubserver | ToFrontEnd
Send = Callable[[int, Message], None]  # (receiver, message)
Channel = tuple[int, int]  # (sender, receiver)
M = TypeVar("M")


MOST_BYTES = 64 << 20  # of one frame; a prompt as long as any context is far below
FULL_BYTES = 1 << 20  # of messages that wait for others to go with
READABLE = int(zmq.POLLIN)
LENGTH = 4  # bytes of a message's length
NO_MESSAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def parse_for_subserver(data: bytes, check: MessageCheck, model: int) -> ToSubserver | None:
    """Return the message to a model in `data`; None, and a line in the log, where there is none."""
    try:
        message = decode_to_subserver(data)
    except NO_MESSAGE as error:
        _thrown_away(data, error)
        return None
    return _fitting(data, message, check.to_subserver(message, model))


def parse_for_front_end(data: bytes, check: MessageCheck) -> ToFrontEnd | None:
    """Return the message in `data`; None, and a line in the log, where there is none."""
    try:
        message = decode_to_front_end(data)
    except NO_MESSAGE as error:
        _thrown_away(data, error)
        return None
    return _fitting(data, message, check.to_front_end(message))


def _fitting(data: bytes, message: M, fault: str | None) -> M | None:
    if fault is None:
        return message
    _thrown_away(data, f"{type(message).__name__}, {fault}")
    return None


def _thrown_away(data: bytes, why: object) -> None:
    log.warning("threw away %d bytes that are no message: %s", len(data), str(why)[:200])


class Queues:
    """Deterministic transport inside one process: messages wait in their channel until somebody delivers them."""

    def __init__(self) -> None:
        self.channels: dict[Channel, deque[tuple[int, bytes]]] = {}
        self._sent = 0

    def send(self, sender: int, receiver: int, message: Message) -> None:
        """Put a message into its channel."""
        self._sent += 1
        entry = (self._sent, encode(message))
        self.channels.setdefault((sender, receiver), deque()).append(entry)

    def waiting(self) -> list[Channel]:
        """Return the channels with something in them, the one with the oldest message first."""
        full = [channel for channel, queue in self.channels.items() if queue]
        return sorted(full, key=lambda channel: self.channels[channel][0][0])

    def take(self, channel: Channel) -> bytes:
        """Return the next message of a channel."""
        return self.channels[channel].popleft()[1]

    def drop(self, address: int) -> None:
        """Lose what is under way to an address, as when a process dies."""
        for (_, receiver), queue in self.channels.items():
            if receiver == address:
                queue.clear()


def endpoint(directory: Path, address: int) -> str:
    """Return where an address listens on this machine."""
    name = "front" if address == FRONT_END else f"m{address}"
    return f"ipc://{directory}/{name}"


def framed(key: bytes, messages: Iterable[bytes]) -> bytes:
    """Return messages to one receiver as they travel together."""
    return key + b"".join([len(data).to_bytes(LENGTH) + data for data in messages])


def parted(frame: bytes, key: bytes) -> list[bytes]:
    """Return the messages of a frame, in order; none, and a line in the log, where it is none of ours."""
    if len(frame) > MOST_BYTES:
        _thrown_away(frame, f"more than {MOST_BYTES} bytes")
        return []
    if not hmac.compare_digest(frame[: len(key)], key):
        _thrown_away(frame, "it does not begin with the key")
        return []
    messages: list[bytes] = []
    at = len(key)
    while at < len(frame):
        begin = at + LENGTH
        at = begin + int.from_bytes(frame[at:begin])
        messages.append(frame[begin:at])
    if at > len(frame):
        _thrown_away(frame, "it ends within a message")
        messages.pop()
    elif not messages:
        _thrown_away(frame, "there is none behind the key")
    return messages


class Sockets:
    """ZeroMQ transport of one process: one socket that listens, one for each address that it talks to.

    Sending never waits: what cannot be sent now is kept by ZeroMQ's own threads, also while a peer is being restarted.
    """

    def __init__(self, address: int, endpoints: dict[int, str], key: bytes) -> None:
        self.address = address
        self.key = key
        self.endpoints = endpoints
        self.context = zmq.Context()
        self.inbox: zmq.Socket[bytes] = self.context.socket(zmq.PULL)
        self.inbox.setsockopt(zmq.RCVHWM, 0)
        self.inbox.setsockopt(zmq.LINGER, 0)
        self.inbox.setsockopt(zmq.MAXMSGSIZE, 4 * MOST_BYTES)  # beyond it ZeroMQ hangs up, unread
        self.inbox.bind(endpoints[address])
        self._outboxes: dict[int, zmq.Socket[bytes]] = {}
        self._kept: dict[int, list[bytes]] = {}  # by receiver
        self._n_kept = 0  # bytes

    def send(self, receiver: int, message: Message) -> None:
        """Hand a message over for sending, now."""
        self.keep(receiver, message)
        self.flush()

    def keep(self, receiver: int, message: Message) -> None:
        """Lay a message by for the next flush."""
        data = encode(message)
        self._kept.setdefault(receiver, []).append(data)
        self._n_kept += len(data)
        if self._n_kept > FULL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand over what was laid by, a frame for each receiver; models wait for it more than the front end does."""
        if not self._kept:
            return
        for receiver in sorted(self._kept, reverse=True):
            self._outbox(receiver).send(framed(self.key, self._kept[receiver]), zmq.NOBLOCK)
        self._kept.clear()
        self._n_kept = 0

    def _outbox(self, receiver: int) -> zmq.Socket[bytes]:
        outbox = self._outboxes.get(receiver)
        if outbox is None:
            outbox = self.context.socket(zmq.PUSH)
            outbox.setsockopt(zmq.SNDHWM, 0)
            outbox.setsockopt(zmq.LINGER, 1000)
            outbox.connect(self.endpoints[receiver])
            self._outboxes[receiver] = outbox
        return outbox

    def receive(self) -> list[bytes]:
        """Return what has arrived from those who know the key, without waiting."""
        found: list[bytes] = []
        while self._has_arrived():
            found += parted(self.inbox.recv(zmq.NOBLOCK), self.key)
        return found

    def _has_arrived(self) -> bool:
        """Return whether there is something to receive; asking takes less than the exception where there is nothing."""
        events = self.inbox.getsockopt(zmq.EVENTS)
        return isinstance(events, int) and events & READABLE != 0

    def fileno(self) -> int:
        """Return the descriptor that can be read when something arrives; then `receive` until there is nothing."""
        return int(self.inbox.getsockopt(zmq.FD))

    def wait(self, timeout_ms: float) -> None:
        """Wait until something arrives, or for so long: not less, or who waits for a moment would look for it over and over."""
        self.inbox.poll(max(0, math.ceil(timeout_ms)))

    def close(self) -> None:
        """Close every socket; what was sent just now still leaves, for at most a second."""
        self.inbox.close()
        for outbox in self._outboxes.values():
            outbox.close()
        self.context.term()
