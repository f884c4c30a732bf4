"""HTTP/1.1 on one connection: h11, with bounds on the work that bytes can make and without its leniences."""

import re
from http import HTTPStatus
from typing import Any

import h11

from services.common.request.errors import Code, Reason
from services.gateway.http.schema.errors import RefusedError
from services.gateway.http.server.limits import CHUNK_BYTES, CHUNKS, EVENTS, HEADER_BYTES, HEADERS

VERSIONS = (b"1.1", b"1.0")
ONCE = (b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"idempotency-key")
"""Headers that decide who calls and what a body is: of two, one reader may take the first and another the last."""
ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"
HEAD_END = re.compile(rb"\n\r?\n")
MOST_CHARACTERS = 200
BYTES = re.compile(r":? (?:bytearray\(|b['\"]).*", re.DOTALL)
"""What came, as h11 repeats it in words of Python."""

FOLDED = re.compile(rb"\n[ \t]")


class Ending(bytes):
    """The last piece of an answer: it is sent with the mark of the end that follows it."""


class Wire(h11.Connection):
    """The server's end; `fault` is why the last event could not be read.

    `lines` are headers of the next answer beside those that say where it ends, which its event has.
    """

    def __init__(self) -> None:
        """Nothing has come."""
        super().__init__(h11.SERVER, HEADER_BYTES)
        self.fault: RefusedError | None = None
        self._chunks = 0
        self._body_bytes = 0
        self._left = EVENTS
        self._chunked = False
        self._head = b""
        self.lines: list[tuple[bytes, bytes]] = []
        self.over = False
        self.without_body = False

    def send(self, event: Any) -> bytes | None:  # type: ignore[override]
        """As h11's, but that the head of an answer comes with what follows it.

        A piece of an answer in chunks makes less work than there: it changes nothing of what may come next.

        Raises:
            h11.LocalProtocolError: the event may not be sent now.
        """
        if type(event) is h11.Response:
            self._head = self._begun(event)
            self._chunked = CHUNKED in self._head.lower()
            return b""
        if type(event) is h11.Data and type(event.data) is Ending:
            self._head = self._piece(event) or b""
            return b""
        return self._piece(event)

    def _begun(self, response: h11.Response) -> bytes:
        """The head; h11 writes those lines that say where the answer ends, for it reads each line three times.

        Raises:
            h11.LocalProtocolError: another line would be two.
        """
        lines, self.lines = self.lines, []
        status, _, rest = (super().send(response) or b"").partition(b"\r\n")
        others = b"".join([b"%b: %b\r\n" % line for line in lines])
        if not others.count(b"\n") == others.count(b"\r") == len(lines):
            raise h11.LocalProtocolError("a header goes on in another line")
        return b"%b\r\n%b%b" % (status, others, rest)

    def _piece(self, event: Any) -> bytes | None:
        head, self._head = self._head, b""
        if type(event) is h11.Data and self._chunked and self.our_state is h11.SEND_BODY:
            return b"%b%x\r\n%b\r\n" % (head, len(event.data), event.data) if event.data else head
        sent: bytes | None = super().send(event)
        return head + sent if head and sent is not None else sent

    @property
    def at_rest(self) -> bool:
        """Nothing of a request has come that was not read."""
        return self.their_state is h11.IDLE and not self.trailing_data[0]

    def begin_turn(self) -> None:
        """Gives EVENTS more; `over` is whether they were too few for what there is."""
        self._left, self.over = EVENTS, False

    def next_event(self) -> Any:
        """As h11's, but that more data is needed where the turn is over.

        Raises:
            h11.RemoteProtocolError: what came is no HTTP, is ambiguous, or makes too much work; `fault` is the refusal.
        """
        self.fault = None
        if not self._left:
            self.over = True
            return h11.NEED_DATA
        self._left -= 1
        try:
            if self.their_state is h11.IDLE:
                self.without_body = False
                self._check_head(self.trailing_data[0])
            event = super().next_event()
            # isinstance asks the abstract class of all events, at fifty times the cost
            if type(event) is h11.Request:
                self.without_body = event.method == b"HEAD"
                self._check_framing(event)
                self._chunks = self._body_bytes = 0
                event = in_origin_form(event)
            elif type(event) is h11.Data:
                self._count(event)
            elif type(event) is h11.EndOfMessage and len(event.headers) > HEADERS:
                self._refuse(f"the body is followed by more than {HEADERS} headers", 431)
        except h11.RemoteProtocolError as error:
            self.fault = self.fault or _refusal(error.error_status_hint, str(error))
            raise
        return event

    def _check_head(self, data: bytes) -> None:
        """Looks at what there is of a head before it is split into lines."""
        end = HEAD_END.search(data)
        head = data[: end.end()] if end else data
        if len(head) > HEADER_BYTES:
            self._refuse(f"the request line and the headers have more than {HEADER_BYTES} bytes", 431)
        lines = head.count(b"\n")
        if lines > HEADERS + 2:
            self._refuse(f"the request has more than {HEADERS} headers", 431)
        if lines != head.count(b"\r\n"):
            self._refuse("a line ends with LF, without CR before it")
        if FOLDED.search(head):
            self._refuse("a header goes on in another line")

    def _check_framing(self, request: h11.Request) -> None:
        """Refuses what two readers may see to end at two places."""
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version != b"1.1"):
            self._refuse("Transfer-Encoding stands beside Content-Length, or in a request that is not HTTP/1.1")
        if request.http_version not in VERSIONS:
            self._refuse("only HTTP/1.1 and 1.0 are spoken here")
        for name in ONCE:
            if names.count(name) > 1:
                self._refuse(f"the header {name.decode()} comes twice")

    def _count(self, data: h11.Data) -> None:
        self._chunks += data.chunk_start
        self._body_bytes += len(data.data)
        if self._chunks > CHUNKS + self._body_bytes // CHUNK_BYTES:
            self._refuse(f"the body comes in more than {CHUNKS} chunks of less than {CHUNK_BYTES} bytes")

    def _refuse(self, text: str, status: int = 400) -> None:
        self.fault = _refusal(status, text)
        raise h11.RemoteProtocolError(text)


def in_origin_form(request: h11.Request) -> h11.Request:
    """The request with its path alone for a target; a name before it, as is written to a proxy, is its host."""
    absolute = ABSOLUTE.match(request.target)
    if absolute is None:
        return request
    rest = request.target[absolute.end() :].partition(b"#")[0]
    headers = [(b"host", absolute[1]), *((name, value) for name, value in request.headers if name != b"host")]
    target = rest if rest.startswith(b"/") else b"/" + rest
    return h11.Request(method=request.method, target=target, headers=headers, http_version=request.http_version)


def _refusal(status: int, text: str) -> RefusedError:
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return RefusedError(HTTPStatus(status), Code.RESOURCE_EXHAUSTED, Reason.INVALID_FIELD, text)
    said = f"no valid HTTP: {BYTES.sub('', text)[:MOST_CHARACTERS]}"
    return RefusedError(HTTPStatus.BAD_REQUEST, Code.INVALID_ARGUMENT, Reason.MALFORMED, said)
