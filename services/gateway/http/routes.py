"""Which path is served by what."""

from collections.abc import Awaitable, Callable, Sequence

from services.gateway.choices import Choices
from services.gateway.http.bodies import ChatBody, CompletionBody
from services.gateway.http.body import Bodies
from services.gateway.http.chat import ChatAnswer
from services.gateway.http.completions import CompletionAnswer
from services.gateway.http.convert import chat_query, completion_query
from services.gateway.http.errors import unknown_path, wrong_method
from services.gateway.http.exchange import Exchange, encoded
from services.gateway.http.generate import Generate
from services.gateway.http.models import PREFIX, Models
from services.gateway.http.openapi import document
from services.gateway.http.recommended import Recommended, by_default
from services.gateway.http.status import StatusPage
from services.gateway.http.tokens import Tokens
from services.gateway.http.tools.form import Form
from services.gateway.request_factory import RequestFactory
from services.gateway.status import StatusBoard
from services.gateway.streams import Streams

Handler = Callable[[Exchange], Awaitable[None]]


class Routes:
    """Handlers by path and method."""

    def __init__(
        self,
        front: RequestFactory,
        streams: Streams,
        board: StatusBoard,
        bodies: Bodies,
        forms: Sequence[Form],
        recommended: Recommended,
    ) -> None:
        """Makes the handlers; the OpenAPI document is written once."""
        choices = Choices(streams)
        models = Models(front)
        chat = Generate(
            ChatBody,
            by_default(recommended, chat_query),
            lambda body, exchange: ChatAnswer(body, exchange, front.token, forms),
            choices,
            bodies,
            streams.room,
        )
        completions = Generate(
            CompletionBody,
            by_default(recommended, completion_query),
            lambda body, exchange: CompletionAnswer(body, exchange, front.token),
            choices,
            bodies,
            streams.room,
        )
        described = encoded(document())

        async def openapi(exchange: Exchange) -> None:
            await exchange.reply(described)

        tokens = Tokens(front, streams, bodies)
        self._retrieve = models.retrieve
        self._handlers: dict[str, tuple[str, Handler]] = {
            "/v1/models": ("GET", models.list),
            "/v1/chat/completions": ("POST", chat),
            "/v1/completions": ("POST", completions),
            "/tokenize": ("POST", tokens.tokenize),
            "/detokenize": ("POST", tokens.detokenize),
            "/v1/paceline/status": ("GET", StatusPage(front, board)),
            "/openapi.json": ("GET", openapi),
        }

    def find(self, exchange: Exchange) -> Handler:
        """What serves a request.

        Raises:
            RefusedError: nothing is served there, or not by this method.
        """
        path = exchange.path
        named = path.startswith(PREFIX) and len(path) > len(PREFIX)
        method, handler = ("GET", self._retrieve) if named else self._handlers.get(path, ("", None))
        if handler is None:
            raise unknown_path(path)
        allowed = (method, "HEAD") if method == "GET" else (method,)
        if exchange.method not in allowed:
            raise wrong_method(", ".join(allowed))
        return handler
