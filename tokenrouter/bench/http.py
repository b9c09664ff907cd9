"""A small HTTP/1.1 client for measuring: connections are kept, each line of a body is stamped when it arrives.

It does no more than what a benchmark needs, so that the client's own work stays small beside the server's.

    TokenRouterError
    └── BenchError      the server cannot be reached, or answers what no benchmark can go on with
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tokenrouter.errors import TokenRouterError

LIMIT = 1 << 24  # bytes of one line
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CLOSED = (ConnectionError, asyncio.IncompleteReadError)


class BenchError(TokenRouterError):
    """A benchmark cannot go on; the message says why."""


@dataclass(frozen=True)
class Head:
    """The head of an answer."""

    status: int
    headers: dict[str, str]


@dataclass(eq=False)
class Http:
    """One server, by its base URL (`http://host:port/v1`)."""

    url: str
    key: str | None = None
    _idle: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the URL once."""
        split = urlsplit(self.url if "//" in self.url else f"http://{self.url}")
        if split.scheme not in ("http", "https") or not split.hostname:
            raise BenchError(f"`{self.url}` is no URL of a server; write http://HOST:PORT/v1")
        self._tls = ssl.create_default_context() if split.scheme == "https" else None
        self._host = split.hostname
        self._port = split.port or (443 if self._tls else 80)
        self._path = split.path.rstrip("/") or "/v1"
        self._netloc = split.netloc

    @property
    def root(self) -> str:
        """The path before `/v1`, where `/tokenize` is."""
        return self._path.removesuffix("/v1")

    async def lines(self, path: str, body: object) -> AsyncIterator[bytes]:
        """Post JSON and yield the lines of the answer as they arrive; raises BenchError unless it is a 200."""
        connection, head = await self._open("POST", self._path + path, msgspec.json.encode(body))
        if head.status != 200:
            raise BenchError(_refusal(head, await self._rest(connection, head), self.url))
        done = False
        try:
            rest = b""
            async for part in _parts(connection[0], head):
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    yield line
            if rest:
                yield rest
            done = True
        except CLOSED as error:
            raise BenchError(f"{self.url}: the answer broke off: {error}") from None
        finally:
            self._give_back(connection, head, done)

    async def json(
        self, path: str, body: object = None, *, base: str | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer; a body makes it a POST."""
        data = b"" if body is None else msgspec.json.encode(body)
        where = (self._path if base is None else base) + path
        connection, head = await self._open("GET" if body is None else "POST", where, data)
        text = await self._rest(connection, head)
        try:
            return head.status, msgspec.json.decode(text) if text else None
        except msgspec.DecodeError:
            return head.status, None

    async def text(self, path: str, *, base: str | None = None) -> tuple[int, str]:
        """Return the status and the text of a page."""
        where = (self._path if base is None else base) + path
        connection, head = await self._open("GET", where, b"")
        return head.status, (await self._rest(connection, head)).decode(errors="replace")

    async def ask(self, path: str, body: object) -> Any:
        """Post JSON and return the answer's; raises BenchError unless it is a 200."""
        status, answer = await self.json(path, body)
        if status != 200:
            raise BenchError(f"{self.url}: {status}: {_message(answer)}")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()
        await asyncio.sleep(0)

    async def _open(self, method: str, path: str, data: bytes) -> tuple[Connection, Head]:
        """Send a request; one on a kept connection that the server has closed meanwhile is sent again on a new one."""
        while self._idle:
            connection = self._idle.pop()
            try:
                return connection, await self._send(connection, method, path, data)
            except CLOSED:
                connection[1].close()
        try:
            connection = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=LIMIT
            )
            return connection, await self._send(connection, method, path, data)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise BenchError(f"cannot reach {self.url}: {error}; is the server running") from None

    async def _send(self, connection: Connection, method: str, path: str, data: bytes) -> Head:
        reader, writer = connection
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {self._netloc}\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        split = (line.partition(":") for line in lines if line)
        return Head(int(status.split(" ", 2)[1]), {n.lower(): v.strip() for n, _, v in split})

    async def _rest(self, connection: Connection, head: Head) -> bytes:
        text = b"".join([part async for part in _parts(connection[0], head)])
        self._give_back(connection, head, True)
        return text

    def _give_back(self, connection: Connection, head: Head, done: bool) -> None:
        if done and head.headers.get("connection", "").lower() != "close":
            self._idle.append(connection)
        else:
            connection[1].close()


async def _parts(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield a body piece by piece."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    elif "content-length" in head.headers:
        yield await reader.readexactly(int(head.headers["content-length"]))
    else:
        while part := await reader.read(1 << 16):
            yield part


def _refusal(head: Head, text: bytes, url: str) -> str:
    try:
        return f"{url}: {head.status}: {_message(msgspec.json.decode(text))}"
    except msgspec.DecodeError:
        return f"{url}: {head.status}"


def _message(answer: Any) -> str:
    """Return what a refusal says, where it is shaped as OpenAI's."""
    error = answer.get("error") if isinstance(answer, dict) else None
    return str(error.get("message")) if isinstance(error, dict) else "no reason was given"
