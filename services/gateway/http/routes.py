"""Which path is served by what."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from services.gateway.http.answers.answer import Answer
from services.gateway.http.answers.chat import ChatAnswer
from services.gateway.http.answers.completions import CompletionAnswer
from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.endpoints import messages as anthropic
from services.gateway.http.endpoints import responses as openai
from services.gateway.http.endpoints.generate import Generate
from services.gateway.http.endpoints.messages import CountTokens, MessageAnswer, read_message
from services.gateway.http.endpoints.models import PREFIX, Models
from services.gateway.http.endpoints.openapi import written
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.endpoints.responses import ResponseAnswer
from services.gateway.http.endpoints.status import StatusPage
from services.gateway.http.endpoints.tokens import Tokens
from services.gateway.http.reading.body import Bodies, parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.reading.recommended import Recommended, by_default
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.errors import unknown_path, wrong_method
from services.gateway.http.server.exchange import OPENAI, Exchange, Words
from services.gateway.intake.query import Query
from services.gateway.parsing.form import Form
from services.gateway.streams.calls import OTHER
from services.gateway.streams.choices import Choices
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Streams
from services.gateway.targets.status import StatusBoard

Handler = Callable[[Exchange], Awaitable[None]]
Read = Callable[[bytearray], Any]
Convert = Callable[[Any, Headers], Query]
Make = Callable[[Any, Exchange], Answer]

WORDS = {"/v1/messages": anthropic.WORDS, "/v1/responses": openai.WORDS}
"""Words of other APIs by the beginning of their paths."""


class Routes:
    """Handlers by path and method."""

    def __init__(
        self,
        front: RequestFactory,
        streams: Streams,
        board: StatusBoard,
        bodies: Bodies,
        recommended: Mapping[str, Recommended],
    ) -> None:
        """Makes the handlers; `recommended` is by the names of models."""
        catalogue = front.catalogue
        choices = Choices(streams)
        models = Models(front)

        def generate(read: Read, convert: Convert, make: Make) -> Generate[Any]:
            def convert_by_model(body: Any, headers: Headers) -> Query:
                language = catalogue.find(body.model)
                return by_default(recommended.get(language.name, {}), convert)(body, headers)

            return Generate(read, convert_by_model, make, choices, bodies, streams.entrance.room)

        def query(body: ChatBody, headers: Headers) -> Query:
            return chat_query(body, headers, catalogue.find(body.model).forms)

        def writing(made: Callable[[Any, Exchange, Spell, Sequence[Form]], Answer]) -> Make:
            def make(body: Any, exchange: Exchange) -> Answer:
                language = catalogue.find(body.model)
                return made(body, exchange, language.tokenizer.token, language.forms)

            return make

        chat = generate(partial(parsed, ChatBody), query, writing(ChatAnswer))
        completions = generate(
            partial(parsed, CompletionBody),
            completion_query,
            writing(lambda body, exchange, spell, _: CompletionAnswer(body, exchange, spell)),
        )
        messages = generate(read_message, query, writing(MessageAnswer))
        responses = generate(read_response, query, writing(ResponseAnswer))

        async def openapi(exchange: Exchange) -> None:
            await exchange.reply(await asyncio.to_thread(written))

        tokens = Tokens(front, streams, bodies)
        self._retrieve = models.retrieve
        self._handlers: dict[str, tuple[str, Handler]] = {
            "/v1/models": ("GET", models.list),
            "/v1/chat/completions": ("POST", chat),
            "/v1/completions": ("POST", completions),
            "/v1/responses": ("POST", responses),
            "/v1/messages": ("POST", messages),
            "/v1/messages/count_tokens": ("POST", CountTokens(front, streams, bodies)),
            "/tokenize": ("POST", tokens.tokenize),
            "/detokenize": ("POST", tokens.detokenize),
            "/tokenizer_info": ("GET", tokens.info),
            "/v1/paceline/status": ("GET", StatusPage(front, board)),
            "/openapi.json": ("GET", openapi),
        }

    @staticmethod
    def words(path: str) -> Words:
        """How refusals at a path are told."""
        return next((words for prefix, words in WORDS.items() if path.startswith(prefix)), OPENAI)

    def endpoint(self, path: str) -> str:
        """What a path is called where requests are counted: itself, but for names of models and what is not served."""
        if path.startswith(PREFIX) and len(path) > len(PREFIX):
            return f"{PREFIX}{{model}}"
        return path if path in self._handlers else OTHER

    def find(self, exchange: Exchange) -> Handler:
        """What serves a request.

        Raises:
            RefusedError: nothing is served there, or not by this method.
        """
        allowed = self.methods(exchange.path)
        if exchange.method not in allowed:
            raise wrong_method(", ".join(allowed))
        return self._at(exchange.path)[1]

    def methods(self, path: str) -> tuple[str, ...]:
        """What may be asked at a path.

        Raises:
            RefusedError: nothing is served there.
        """
        method, _ = self._at(path)
        return (method, "HEAD") if method == "GET" else (method,)

    def _at(self, path: str) -> tuple[str, Handler]:
        named = path.startswith(PREFIX) and len(path) > len(PREFIX)
        found = ("GET", self._retrieve) if named else self._handlers.get(path)
        if found is None:
            raise unknown_path(path, self._handlers)
        return found
