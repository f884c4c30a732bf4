"""Messages of a chat, as clients send them back: what a model or a client has put into history is never refused.

Fields that are not known here change no text, so they are ignored; what carries text has its place.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema

from services.common.request.limits import LIMITS
from services.gateway.http.schema.base import Body, Ignored

MOST_PARTS = 1024
"""Parts of one message."""


class _TextOrNothing:
    """Text, where it is one; every other value is none."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Takes a failure for null."""
        return core_schema.with_default_schema(core_schema.str_schema(strict=True), default=None, on_error="default")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allows everything."""
        return {}


Lenient = Annotated[str | None, _TextOrNothing]


class History(Body):
    """A part of history: fields that are not known are ignored."""

    model_config = ConfigDict(extra="ignore")


class TextPart(History):
    """A part of a message: text, what the assistant refused, or what it thought."""

    type: Literal["text", "input_text", "output_text", "refusal", "thinking", "redacted_thinking"]
    text: str | None = None
    refusal: str | None = None
    thinking: str | None = None
    cache_control: Ignored = None


class FunctionCalled(History):
    """The function of a call."""

    name: str = ""
    arguments: str | dict[str, JsonValue] | list[JsonValue] | None = Field(
        default=None, description="A JSON object, also as text."
    )
    parsed_arguments: Ignored = None


class CustomCalled(History):
    """The tool of a call whose input is text of any form."""

    name: str = ""
    input: Lenient = None


class ToolCalled(History):
    """A call that the assistant asked for."""

    id: Lenient = None
    type: Lenient = None
    function: FunctionCalled | None = None
    custom: CustomCalled | None = Field(default=None, description="A call of one of OpenAI's custom tools.")
    index: Ignored = None
    cache_control: Ignored = None


class MessageBody(History):
    """One message of a chat. Answers of this API may be sent back as they are, with what clients put into them."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MOST_PARTS)] | None = None
    name: Lenient = None
    tool_calls: list[ToolCalled] | None = Field(default=None, fail_fast=True, max_length=LIMITS.chat_tool_calls)
    tool_call_id: Lenient = None
    reasoning_content: Lenient = None
    reasoning: Lenient = Field(default=None, description="As reasoning_content.")
    refusal: Lenient = Field(default=None, description="Stands for the content, where there is none.")
    function_call: FunctionCalled | None = Field(default=None, description="A call, as it was before tools.")
    audio: Ignored = None
    annotations: Ignored = None
    parsed: Ignored = None
    provider_specific_fields: Ignored = None
    cache_control: Ignored = None


class FunctionBody(History):
    """A function that the model may ask for."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="JSON Schema of its arguments.")
    strict: bool | None = Field(default=None, description="Taken; the template may show it to the model.")
