"""The bodies of requests, field by field.

Types, names and counts are checked here, ranges by the validator of all listeners. Every list ends at its first fault:
an error for each entry would be larger than the body.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, ModelWrapValidatorHandler, PrivateAttr, Tag, model_validator

from services.common.request.limits import LIMITS
from services.gateway.http.schema.base import Body, Ignored, unless
from services.gateway.http.schema.history import FunctionBody, History, MessageBody
from services.gateway.http.schema.hosted import HostedTool, tag_of_tool

MOST_CHOICES = 8
MOST_ANSWERS = 128
"""Of one call: its prompts times their choices."""

Texts = Annotated[list[str], Field(fail_fast=True)]
Ids = Annotated[list[int], Field(fail_fast=True, max_length=LIMITS.prompt_ids)]


class Extension(Body):
    """What OpenAI's API has no name for."""

    speculation: bool | None = Field(default=None, description="False switches speculation off for this request.")
    max_draft: int | None = Field(default=None, ge=0, lt=2**32, description="Longest draft in tokens.")
    priority: int | None = Field(
        default=None, ge=-100, le=100, description="Higher runs first among a tenant's requests."
    )
    drafts: bool | None = Field(default=None, description="Chunks tell of their draft tokens.")
    reasoning: bool | None = Field(
        default=None, description="False leaves `<think>` blocks in the content. Default true."
    )


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = Field(default=None, description="A last chunk without choices tells the usage.")
    continuous_usage_stats: Ignored = None
    include_obfuscation: Ignored = None


class NamedSchema(Body):
    """A JSON Schema with a name."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema", description="JSON Schema of the answer.")
    strict: bool | None = Field(default=None, description="Taken: the answer follows the schema in any case.")


class ResponseFormat(Body):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = Field(default=None, description="Needed with json_schema.")
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema", description="With json_object.")


class StructuredOutputs(Body):
    """What the answer must be like, by vLLM's names; one of them."""

    json_: dict[str, JsonValue] | str | None = Field(default=None, alias="json", description="A JSON Schema.")
    regex: str | None = Field(default=None, description="The whole answer matches it.")
    choice: Texts | None = Field(default=None, description="The answer is one of them.")
    grammar: str | None = Field(default=None, description="In Lark's or GBNF's syntax.")
    json_object: bool | None = Field(default=None, description="True: the answer is a JSON object.")
    disable_fallback: Ignored = None
    disable_any_whitespace: Ignored = None
    disable_additional_properties: Ignored = None


class Sampling(Body):
    """What other APIs have no names for; the chat that they become checks it."""

    top_k: JsonValue = None
    min_p: JsonValue = None
    seed: JsonValue = None
    presence_penalty: JsonValue = None
    frequency_penalty: JsonValue = None
    repetition_penalty: JsonValue = None
    ignore_eos: JsonValue = None
    min_tokens: JsonValue = None
    chat_template_kwargs: JsonValue = None
    paceline: JsonValue = None

    def sampling(self) -> dict[str, JsonValue]:
        """What the body says of sampling, by the name of each field."""
        return {name: getattr(self, name) for name in Sampling.model_fields}


class Common(Body):
    """Fields of both endpoints; ranges and defaults are in docs/use.md."""

    model: str = Field(min_length=1, description="Name of the model, as /v1/models tells it.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2, description="0 is greedy. Default 1.")
    top_p: float | None = Field(default=None, ge=0, le=1, description="0 is greedy.")
    top_k: int | None = Field(default=None, ge=-1, lt=2**32, description="0 and -1 take all tokens.")
    min_p: float | None = Field(default=None, ge=0, le=1)
    n: int | None = Field(default=None, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    prompt_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Best tokens at each position of the prompt; not with stream."
    )
    stop: str | Annotated[list[str], Field(fail_fast=True, max_length=LIMITS.stop_strings)] | None = None
    stop_token_ids: list[int] | None = Field(default=None, fail_fast=True, max_length=LIMITS.stop_token_ids)
    include_stop_str_in_output: bool | None = Field(
        default=None, description="True: the text ends with the stop string that ended it. Default false."
    )
    skip_special_tokens: bool | None = Field(
        default=None, description="False: special tokens stand in the text by their names. Default true."
    )
    spaces_between_special_tokens: Ignored = None
    ignore_eos: bool | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,10}$")], float] | None = Field(
        default=None, fail_fast=True, max_length=LIMITS.logit_bias
    )
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=10)
    bad_words: list[str] | None = Field(
        default=None, fail_fast=True, max_length=LIMITS.bad_words, description="The answer never holds their tokens."
    )
    allowed_token_ids: list[int] | None = Field(
        default=None,
        fail_fast=True,
        min_length=1,
        max_length=LIMITS.allowed_token_ids,
        description="The only tokens that may come, ends of texts too; not with a form of the answer.",
    )
    return_token_ids: bool | None = Field(
        default=None, description="Tells `prompt_token_ids`, and `token_ids` of each choice."
    )
    response_format: ResponseFormat | None = Field(default=None, description="The form of the answer.")
    structured_outputs: StructuredOutputs | None = Field(default=None, description="The form of the answer.")
    guided_json: dict[str, JsonValue] | str | None = Field(default=None, description="As structured_outputs.json.")
    guided_regex: str | None = Field(default=None, description="As structured_outputs.regex.")
    guided_choice: Texts | None = Field(default=None, description="As structured_outputs.choice.")
    guided_grammar: str | None = Field(default=None, description="As structured_outputs.grammar.")
    guided_decoding_backend: Ignored = None
    paceline: Extension | None = None
    user: Ignored = None
    store: Ignored = None
    metadata: Ignored = None
    service_tier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    safety_identifier: Ignored = None
    moderation: Ignored = None
    request_id: Ignored = None
    cache_salt: Ignored = None
    cache_prompt: Ignored = None
    keep_alive: Ignored = None
    kv_transfer_params: Ignored = None
    vllm_xargs: Ignored = None
    timeout: Ignored = None
    provider: Ignored = None
    route: Ignored = None
    usage: Ignored = None
    rid: Ignored = None
    stream_reasoning: Ignored = None
    timings_per_token: Ignored = None
    perf_metrics_in_response: Ignored = None
    tags: Ignored = None
    ttl: Ignored = None
    trace: Ignored = None
    session_id: Ignored = None
    user_id: Ignored = None
    chat_id: Ignored = None
    conversation_id: Ignored = None
    litellm_session_id: Ignored = None
    _left: tuple[str, ...] = PrivateAttr(default=())

    @property
    def left_out(self) -> tuple[str, ...]:
        """What was sent and is left out, by the names of its kinds."""
        return self._left


class ToolBody(History):
    """A tool; fields of it that are not known are told to the model, and mean nothing else."""

    type: Literal["function"] = "function"
    function: FunctionBody
    cache_control: Ignored = None
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _place: str = PrivateAttr(default="")
    _bare: bool = PrivateAttr(default=False)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, check: ModelWrapValidatorHandler["ToolBody"]) -> "ToolBody":
        """Keeps what the client gave: templates print its fields in their order."""
        tool = check(value)
        if isinstance(value, dict):
            tool._given = value
        return tool

    @property
    def place(self) -> str:
        """Where it stands in what the client sent."""
        return self._place

    @property
    def name_place(self) -> str:
        """Where its name stands there: other APIs write a function without an object around it."""
        return f"{self._place}.{'name' if self._bare else 'function.name'}"

    def stands(self, place: str) -> None:
        """It was written in the words of another API, where it stands elsewhere."""
        self._place, self._bare = place, True

    def plain(self) -> dict[str, Any]:
        """The tool as a chat template reads it: the client's fields in the client's order."""
        function = {name: value for name, value in self._given["function"].items() if value is not None}
        return {name: function if name == "function" else self._given[name] for name in self._given if name in SHOWN}


AnyTool = Annotated[
    Annotated[HostedTool, Tag("hosted tool")] | Annotated[ToolBody, Tag("function tool")], Discriminator(tag_of_tool)
]


class NamedFunction(Body):
    """The function of a choice."""

    name: str


class NamedChoice(Body):
    """The one tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class ModeChoice(Body):
    """The word of a choice, as an object."""

    type: Literal["auto", "none", "required"]


class NamedTool(Body):
    """One of the tools that may be called."""

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Body):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"] = "auto"
    tools: list[NamedTool] = Field(fail_fast=True, max_length=LIMITS.chat_tools)


class AllowedChoice(Body):
    """A choice among some of the tools; the model is told of these alone."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


Choice = (
    Literal["auto", "none", "required"]
    | Annotated[NamedChoice | ModeChoice | AllowedChoice, Field(discriminator="type")]
    | None
)


SHOWN = ("type", "function")
"""Fields of a tool that templates read."""


class ThinkingBody(Body):
    """Whether the model thinks, and for how long."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(
        default=None, ge=0, le=LIMITS.thinking_budget, description="As thinking_token_budget."
    )
    clear_thinking: Ignored = None
    display: Ignored = None


class ChatBody(Common):
    """The body of POST /v1/chat/completions."""

    messages: list[MessageBody] = Field(fail_fast=True, max_length=LIMITS.chat_messages)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31, description="The same as max_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: list[AnyTool] | None = Field(
        default=None,
        fail_fast=True,
        max_length=LIMITS.chat_tools,
        description="Those that a provider runs are left out beside others, and the log says so.",
    )
    tool_choice: Choice = Field(default=None, description="required, or one tool: the answer is calls. Default auto.")
    parallel_tool_calls: bool | None = Field(default=None, description="False: at most one call. Default true.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None,
        description="none and minimal switch thinking off, where the template can; it may read the word."
        " The gateway's setting effort_budgets bounds the thought by it.",
    )
    thinking_token_budget: int | None = Field(
        default=None,
        ge=0,
        le=LIMITS.thinking_budget,
        description="Tokens of a thought after which it is closed; 0 closes it at once.",
    )
    thinking: ThinkingBody | None = Field(
        default=None, description="enabled and disabled switch thinking, where the template can."
    )
    enable_thinking: bool | None = Field(default=None, description="Switches thinking, where the template can.")
    include_reasoning: bool | None = Field(default=None, description="False leaves thoughts out of the answer.")
    separate_reasoning: bool | None = Field(default=None, description="As paceline.reasoning.")
    verbosity: Ignored = None
    prediction: Ignored = None
    modalities: list[Literal["text"]] | None = Field(default=None, fail_fast=True, max_length=8)
    add_generation_prompt: bool | None = Field(default=None, description="False: no new turn begins. Default true.")
    continue_final_message: bool | None = Field(
        default=None, description="The answer goes on with the last message, which must be the assistant's."
    )
    chat_template_kwargs: dict[str, JsonValue] | None = Field(
        default=None, fail_fast=True, max_length=LIMITS.template_arguments
    )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Tools that a provider runs too."""
        if not self.tools:
            return self._left
        return (*self._left, *(tool.type for tool in self.tools or () if isinstance(tool, HostedTool)))

    def functions(self) -> tuple[ToolBody, ...]:
        """The tools that a client runs; each knows its place in what the client sent."""
        found = []
        for index, tool in enumerate(self.tools or ()):
            if isinstance(tool, ToolBody):
                tool._place = tool._place or f"tools[{index}]"
                found.append(tool)
        return tuple(found)


class CompletionBody(Common):
    """The body of POST /v1/completions."""

    prompt: str | Texts | Ids | Annotated[list[Ids], Field(fail_fast=True)] = Field(
        description=f"Text or token ids, or a list of either; prompts times n are at most {MOST_ANSWERS}."
    )
    max_tokens: int | None = Field(default=None, ge=0, lt=2**31, description="0 computes the prompt alone. Default 16.")
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool | None = Field(default=None, description="The prompt stands before the text, and in its logprobs.")
    best_of: Annotated[Literal[1] | None, unless("send n and choose")] = None
    suffix: Annotated[Literal[""] | None, unless("nothing is written in the middle of a text")] = None
