"""Every request is answered: one that means nothing, or comes behind the end, with the protocol's error for it.

pygls only logs these, and an editor that waits for an answer waits for ever.
"""

from __future__ import annotations

from typing import Any

from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
)
from pygls.protocol import LanguageServerProtocol


class Protocol(LanguageServerProtocol):
    """The protocol, with an answer for what pygls cannot read."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Return a message; None for one that means nothing, which is answered where it asks for an answer."""
        try:
            return super().structure_message(data)
        except (JsonRpcInvalidParams, JsonRpcInternalError):
            if "method" in data and "id" in data:
                why = f"`{data['method']}` does not take these params"
                self._refuse(data["id"], JsonRpcInvalidParams(why))
            return None

    def handle_message(self, message: Any) -> None:
        """Pass a message on; requests behind `shutdown` are refused."""
        if message is None:
            return
        if self._shutdown and hasattr(message, "id") and hasattr(message, "method"):
            self._refuse(message.id, JsonRpcInvalidRequest("the server is shut down"))
            return
        super().handle_message(message)

    def _refuse(self, id_: Any, why: JsonRpcException) -> None:
        self._send_response(id_, error=why.to_response_error())
