"""Serves metrics over HTTP from a thread of its own."""

import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

_LOOK_S = 0.05
"""Seconds between two looks whether the server must end; with the library's default every stop takes half a second."""


class Exporter:
    """Answers scrapes from construction until `close`; `address` is host:port as bound.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server = make_server(host, port, make_wsgi_app(registry), _Server, _Handler)
        self.address = f"{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the server; waits for the present look, not for scrapes that run."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each scrape, so that a scraper that stalls stops no other one; no thread outlives the process."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    """Logs no scrapes."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Drops the line."""
