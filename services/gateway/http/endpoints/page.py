"""A page for people at /: static files, the same for everybody; all that it shows it asks for with the reader's key."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.gateway.http.schema.errors import wrong_method
from services.gateway.http.server.exchange import Exchange

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
KINDS = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles are files of this origin; nothing turns text into markup, and no other page may show this one."""

HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
]


@dataclass(frozen=True, slots=True)
class File:
    """One file in memory."""

    kind: bytes
    content: bytes

    async def __call__(self, exchange: Exchange) -> None:
        """Sends it.

        Raises:
            RefusedError: the method is another one.
        """
        if exchange.method not in ("GET", "HEAD"):
            raise wrong_method("GET, HEAD")
        await exchange.reply(self.content, headers=HEADERS, kind=self.kind)


def files() -> Mapping[str, File]:
    """The page's files by path."""
    found = {f"/static/{path.name}": File(KINDS[path.suffix], path.read_bytes()) for path in FOLDER.iterdir()}
    return {**found, "/": found.pop(f"/static/{INDEX}")}
