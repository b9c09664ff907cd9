"""From a bound socket to an orderly end: load, serve, drain, leave no process behind.

The socket is bound and the HTTP server answers before any model is loaded: a port in use fails at once, and `/health`
and `/ready` tell the truth from the first second. The first SIGINT or SIGTERM drains: new requests get 503, running
ones may finish until the deadline, the rest end with an error event. A second one ends everything at once.

    TokenRouterError
    ├── CannotListen        the address cannot be bound
    └── CannotEncrypt       certificate and key cannot be used
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import uvicorn

from tokenrouter.errors import TokenRouterError
from tokenrouter.server.access import Access, Observer
from tokenrouter.server.app import create_app
from tokenrouter.server.service import Service

BACKLOG = 2048
LAST_BYTES_S = 5  # for clients that do not read what they asked for
PART_S = 0.05  # between two looks at who has
INTERRUPTED = 130


class CannotListen(TokenRouterError):  # noqa: N818 - reads as what it says
    """The address cannot be bound; the message says why."""


class CannotEncrypt(TokenRouterError):  # noqa: N818
    """A certificate and its key cannot be used; the message says why."""


class Tls(NamedTuple):
    """Files in PEM that a server proves itself with."""

    certificate: Path
    key: Path | None  # None where the certificate's file holds it

    def check(self) -> None:
        """Raise CannotEncrypt where the two cannot be used."""
        for option, file in (("certfile", self.certificate), ("keyfile", self.key)):
            if file is not None and not file.is_file():
                raise CannotEncrypt(f"no such file: `{file}`, named by `--ssl-{option}`")
        try:
            # Without a password of its own the library would ask the terminal for one.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise CannotEncrypt(self._why(error)) from None

    def _why(self, error: OSError) -> str:
        key = self.key or self.certificate
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            return f"the key in `{key}` does not belong to the certificate in `{self.certificate}`"
        if isinstance(error, PermissionError):
            return f"`{self.certificate}` or `{key}` must not be read by this user"
        return f"`{self.certificate}` and `{key}` hold no certificate and key in PEM without a password"


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CannotListen(f"no such address: `{host}` ({error.strerror})") from None
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise CannotListen(_why(error, host, port)) from None
    return sock


def _why(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; choose another with `--port`"
        case errno.EACCES:
            return f"port {port} needs rights that this user lacks; choose one above 1023"
        case errno.EADDRNOTAVAIL:
            return f"{host} is no address of this machine; choose another with `--host`"
        case _:
            return f"cannot listen at {host}:{port}: {error.strerror}"


def url(sock: socket.socket, tls: Tls | None = None) -> str:
    """Return the base URL that a client is given."""
    host, port = sock.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}/v1" if ":" in host else f"{scheme}://{host}:{port}/v1"


def is_loopback(sock: socket.socket) -> bool:
    """Return whether only this machine can reach the socket."""
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback


class _Server(uvicorn.Server):
    """Ends as soon as the clients have what was written for them, whether or not they hang up."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and let those go that have nothing to send; the rest have `LAST_BYTES_S`."""
        parting = asyncio.create_task(self._part())
        try:
            await super().shutdown(sockets)
        finally:
            parting.cancel()

    async def _part(self) -> None:
        """Cut connections that are closing and have sent all: by TLS they would wait for the other side's farewell."""
        end = time.monotonic() + LAST_BYTES_S
        while True:
            await asyncio.sleep(PART_S)
            over = time.monotonic() > end
            for connection in list(self.server_state.connections):
                transport = connection.transport
                if over or (transport.is_closing() and not unsent(transport)):
                    transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: they are `serve`'s."""
        yield


def unsent(transport: asyncio.Transport) -> int:
    """Return the bytes that wait to be sent; under TLS there is a second buffer, which nothing public tells of."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    under_tls: int = 0 if below is None else below.get_write_buffer_size()
    return transport.get_write_buffer_size() + under_tls


class _Signals:
    """How often the user asked us to end."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._note)

    def _note(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def serve(
    service: Service,
    sock: socket.socket,
    *,
    drain_s: float,
    say: Callable[[str], None],
    on_ready: Callable[[], None],
    tls: Tls | None = None,
    observers: Sequence[Observer] = (),
) -> int:
    """Serve until a signal comes, and return the exit status; raises StartFailed."""
    signals = _Signals()
    config = uvicorn.Config(
        Access(create_app(service), observers),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2
        * LAST_BYTES_S,  # beyond what it takes to cut those who do not read
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None or tls.key is None else str(tls.key),
    )
    server = _Server(config)
    http = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        if await _first(signals.first, service.client.start(say)):
            on_ready()
            await signals.first.wait()
            say(f"draining for up to {drain_s:g} s; ^C once more ends at once")
        service.draining = True
        if await _first(signals.second, service.client.close(drain_s)):
            return 0
        server.force_exit = True
        return INTERRUPTED
    finally:
        service.draining = True
        await service.client.close(0)
        server.should_exit = True
        await http


async def _first(event: asyncio.Event, work: Coroutine[object, object, None]) -> bool:
    """Return whether the work was done before the event; it is cancelled where it was not."""
    task = asyncio.ensure_future(work)
    told = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        task.cancel()
        told.cancel()
        await asyncio.gather(task, told, return_exceptions=True)
