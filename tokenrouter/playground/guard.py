"""Only the page itself may ask: not other pages in the same browser, and not a name that was bound to this address.

A page of another origin cannot read answers without leave, but it can send requests, and by a name of its own that resolves to
this address (DNS rebinding) it would be of the same origin. So the Host must be an address, or a name that this server was told
or that means this machine, and where a browser says who asks, that must be the page.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses what does not come from the page; adds the headers that keep the page to itself."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {"localhost", socket.gethostname().lower(), *(n.lower() for n in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        why = self.refusal(Headers(scope=scope))
        if why:
            await PlainTextResponse(why, 403)(scope, receive, answer)
            return
        await self._app(scope, receive, answer)

    def refusal(self, headers: Headers) -> str:
        """Return why a request is refused; '' where it is not."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"`{host}` is no name of this server; start it with `--host {host.partition(':')[0]}` to use that"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "another page asks; only the playground's own may"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "another page asks; only the playground's own may"
        return ""

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host header is an address or a name that we know."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
