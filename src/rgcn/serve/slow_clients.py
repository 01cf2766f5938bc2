"""HTTP as uvicorn reads it, with patience that ends: against clients that are slow, send without end, or have gone."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rgcn.serve.limits import Limits
from rgcn.serve.schemas import Refusal, come_later
from rgcn.serve.security import API_HEADERS

# A read may bring a quarter of a megabyte; the parser gets it in parts, and what is too long is seen between them.
PART = 4096


class PatientProtocol(HttpToolsProtocol):
    """uvicorn, which waits for ever, takes headers without end and works for clients who have gone. This one gives up
    after `limits.slow` seconds and `limits.head` bytes, counts connections, and stops the work of a lost one."""

    limits = Limits()

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._timers: dict[str, asyncio.TimerHandle] = {}  # for a request to arrive, for a reader to go on
        self._beside_body = 0  # bytes since the last one of a body: of a head, of trailers, of what is neither
        self._app, self.app = self.app, self._abandonable
        self._task: asyncio.Task[Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(come_later("too_busy", f"{self.limits.connections:,} connections are open already"))
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PART):
            if self.transport.is_closing():
                return
            part = data[at : at + PART]
            # Bytes and not headers are counted: the parser keeps a header that has no end to itself.
            self._beside_body += len(part)
            super().data_received(part)
            if self._beside_body > self.limits.head:
                words = f"the request's first line and headers, or its trailers, exceed {self.limits.head:,} bytes"
                self._refuse(Refusal("header_too_large", words))
        if "request" not in self._timers and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_request()  # something came that is no request yet

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._beside_body = 0
        self._wait_for_request()

    def on_headers_complete(self) -> None:
        self._disarm("request")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_body = 0
        super().on_body(body)

    def _arm(self, timer: str, then: Callable[[], None]) -> None:
        self._disarm(timer)
        self._timers[timer] = self.loop.call_later(self.limits.slow, then)

    def _disarm(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _wait_for_request(self) -> None:
        self._arm("request", self._give_up)

    def _give_up(self) -> None:
        self._disarm("request")
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(Refusal("too_slow", f"the request did not arrive within {self.limits.slow:g} seconds"))
        else:
            self._wait_for_request()  # half a request behind one that is being answered: it has its time after that

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm("reader", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._disarm("reader")

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm("request")
        self._disarm("reader")
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._task is not None:
            self._task.cancel()

    async def _abandonable(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, stopped when its client goes: uvicorn would let it work on for nobody."""
        task = self._task = asyncio.current_task()
        try:
            if self in self.connections:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if self in self.connections:
                raise
        finally:
            if self not in self.connections:
                # Of several requests sent at once uvicorn marks only the last, and would report the others as failed.
                receive.__self__.disconnected = True
            if self._task is task:
                self._task = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("bad_request", "this is no valid HTTP request"))

    def _refuse(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # an answer is half written: there is no place for another
            return
        response = refusal.response()
        headers = [*response.raw_headers, (b"connection", b"close"), *API_HEADERS]
        lines = [STATUS_LINE[refusal.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n"]
        self.transport.write(b"".join([*lines, bytes(response.body)]))
        self.transport.close()


def protocol_for(limits: Limits) -> type[PatientProtocol]:
    """The protocol with these limits; uvicorn makes one for each connection and gives it nothing of ours."""
    return type("Protocol", (PatientProtocol,), {"limits": limits})
