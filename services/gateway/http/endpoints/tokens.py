"""POST /tokenize and /detokenize: text to token ids as a request would have them, and back; GET /tokenizer_info."""

from typing import Any

from pydantic import Field, JsonValue

from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.common.request.validation import check_token_ids
from services.gateway.http.reading.body import Bodies, parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.base import Body
from services.gateway.http.schema.bodies import ChatBody, Ids, ToolBody
from services.gateway.http.schema.history import MessageBody
from services.gateway.http.schema.replies import DetokenizeReply, TokenizeReply, TokenizerReply
from services.gateway.http.server.exchange import Exchange, encoded
from services.gateway.intake.query import Prompt, TextPrompt, prompt_cost
from services.gateway.prompts.chat_check import check_size
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Streams
from services.gateway.tenancy.auth import current_tenant

CHAT_FIELDS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")
"""Fields that mean what they mean in a chat."""


class TokenizeBody(Body):
    """The body of POST /tokenize: a prompt, or a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[MessageBody] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_messages)
    tools: list[ToolBody] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tools)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = Field(
        default=None, fail_fast=True, max_length=LIMITS.template_arguments
    )
    add_special_tokens: bool | None = Field(
        default=None, description="Those that the tokenizer adds to a prompt. Default true; a chat has its template's."
    )
    return_token_strs: bool | None = Field(default=None, description="Tells each token as text too.")


class DetokenizeBody(Body):
    """The body of POST /detokenize."""

    model: str | None = None
    tokens: Ids


class Tokens:
    """These endpoints; those that are posted to count as requests while they run."""

    def __init__(self, front: RequestFactory, streams: Streams, bodies: Bodies) -> None:
        """Takes the tokenizer's owner, admission, and what reads bodies."""
        self._front = front
        self._streams = streams
        self._bodies = bodies

    async def tokenize(self, exchange: Exchange) -> None:
        """Token ids of a prompt or a chat.

        Raises:
            PacelineError: the body is invalid, or no target has said yet what it serves.
        """

        def read(raw: bytearray) -> tuple[TokenizeBody, Prompt]:
            body = parsed(TokenizeBody, raw)
            return body, _prompt(body)

        with self._streams.entrance.admitted() as ticket:
            body, prompt = await self._bodies.read(exchange, read)
            ticket.queue(prompt_cost(prompt))
            model = await self._front.model(body.model or "")
            ids = await self._front.tokens(prompt, model, current_tenant())
        spell = self._front.catalogue.find(model.name).tokenizer.token
        reply: TokenizeReply = {
            "count": len(ids),
            "max_model_len": model.context_limit,
            "tokens": [*ids],
            "token_strs": [spell(one)[0] for one in ids] if body.return_token_strs else None,
        }
        await exchange.reply(encoded(reply))

    async def detokenize(self, exchange: Exchange) -> None:
        """The text of token ids, special tokens by their names.

        Raises:
            PacelineError: the body is invalid, or no target has said yet what it serves.
        """

        def read(raw: bytearray) -> tuple[DetokenizeBody, str]:
            body = parsed(DetokenizeBody, raw)
            check_token_ids(body.tokens, 2**31, "tokens")
            spell = self._front.catalogue.find(body.model or "").tokenizer.token
            text = b"".join(spell(one)[1] for one in body.tokens)
            return body, text.decode(errors="replace")

        with self._streams.entrance.admitted():
            body, text = await self._bodies.read(exchange, read)
            model = await self._front.model(body.model or "")
        check_token_ids(body.tokens, model.vocab_size, "tokens")
        reply: DetokenizeReply = {"prompt": text}
        await exchange.reply(encoded(reply))

    async def info(self, exchange: Exchange) -> None:
        """The special tokens and the template, by which lm-eval takes this tokenizer for its own.

        Raises:
            PacelineError: UNKNOWN_MODEL, there are several.
        """
        tokenizer = self._front.catalogue.find("").tokenizer
        reply: TokenizerReply = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokenizer.names.get("bos_token"),
            "eos_token": tokenizer.names.get("eos_token"),
            "pad_token": tokenizer.names.get("pad_token"),
            "unk_token": tokenizer.names.get("unk_token"),
            "chat_template": tokenizer.template or None,
        }
        await exchange.reply(encoded(reply))


def _prompt(body: TokenizeBody) -> Prompt:
    """What is to become tokens.

    Raises:
        PacelineError: INVALID_FIELD, neither prompt nor messages are given, or both, or a field of the other one.
    """
    chat = {name: value for name in CHAT_FIELDS if (value := getattr(body, name)) is not None}
    if (body.prompt is None) == (body.messages is None):
        raise invalid_field("prompt", "either prompt or messages are needed")
    if body.messages is None:
        for name in chat:
            raise invalid_field(name, "needs messages")
        return TextPrompt(body.prompt or "", check_size(body.prompt or ""), body.add_special_tokens is not False)
    if body.add_special_tokens:
        raise invalid_field("add_special_tokens", "the chat template writes the special tokens of a chat")
    fields: dict[str, Any] = {"model": body.model or "any", **chat}
    return chat_query(ChatBody.model_construct(**fields), Headers()).prompt
