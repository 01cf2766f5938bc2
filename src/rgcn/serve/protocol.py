"""HTTP as uvicorn reads it, with patience that ends: a client may not hold a connection by being slow."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rgcn.serve.gate import API_HEADERS
from rgcn.serve.limits import Limits
from rgcn.serve.refusals import Refusal, too_busy


class PatientProtocol(HttpToolsProtocol):
    """uvicorn waits for ever for the rest of a request and for a reader of its answer, and takes headers without end.

    This one gives up after `limits.slow` seconds and `limits.head` bytes, counts connections, and refuses in our shape.

    limits  of the server; set by `protocol_for` on a subclass
    """

    limits = Limits()

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._for_request: asyncio.TimerHandle | None = None
        self._for_reader: asyncio.TimerHandle | None = None
        self._in_head, self._head_size = True, 0

    # -- requests that come slowly, or without end -------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(too_busy(f"{self.limits.connections:,} connections are open already"))
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > self.limits.head:
                words = f"the request's first line and headers are longer than {self.limits.head:,} bytes"
                self._refuse(Refusal("header_too_large", words))
        if self._for_request is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_request()  # something came that is no request yet

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_size = True, 0
        self._wait_for_request()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_wait()
        super().on_headers_complete()

    def _wait_for_request(self) -> None:
        self._cancel_wait()
        self._for_request = self.loop.call_later(self.limits.slow, self._give_up)

    def _cancel_wait(self) -> None:
        if self._for_request is not None:
            self._for_request.cancel()
            self._for_request = None

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(Refusal("too_slow", f"the request did not arrive within {self.limits.slow:g} seconds"))

    # -- readers that do not read ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._for_reader is None:
            self._for_reader = self.loop.call_later(self.limits.slow, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._for_reader is not None:
            self._for_reader.cancel()
            self._for_reader = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_wait()
        if self._for_reader is not None:
            self._for_reader.cancel()
        super().connection_lost(exc)

    # -- refusals before there is an application to make them --------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("bad_request", "this is no valid HTTP request"))

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        body = refusal.body()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *((name.lower().encode(), value.encode()) for name, value in refusal.headers.items()),
            *API_HEADERS,
        ]
        lines = [STATUS_LINE[refusal.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", body]
        self.transport.write(b"".join(lines))
        self.transport.close()


def protocol_for(limits: Limits) -> type[PatientProtocol]:
    """The protocol with these limits; uvicorn makes one for each connection and gives it nothing of ours."""
    return type("Protocol", (PatientProtocol,), {"limits": limits})
