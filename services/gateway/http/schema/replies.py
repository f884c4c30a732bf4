"""The forms of all answers: plain dictionaries with types, of which the served OpenAPI document is made."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

FinishName = Literal["stop", "length", "tool_calls"]


class ErrorDetail(TypedDict):
    """One refusal; `param` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(TypedDict):
    """A refusal as the body of an answer, or as an event of a stream."""

    error: ErrorDetail


class PromptDetails(TypedDict):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(TypedDict):
    """Of the answer's tokens: those of thoughts, their tags among them."""

    reasoning_tokens: int


class Rounds(TypedDict):
    """Passes of the model, and draft tokens in them: a round commits (accepted + rounds) / rounds tokens on average."""

    rounds: int
    drafted: int
    accepted: int


class Usage(TypedDict):
    """Tokens of a call, all of its choices together; the prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    paceline: Rounds


class DraftedToken(TypedDict):
    """A token of the output, and whether it was a draft."""

    text: str
    accepted: bool


class Drafts(TypedDict):
    """Draft tokens of the rounds that a chunk comes from, and the tokens that these rounds committed."""

    drafted: int
    accepted: int
    tokens: list[DraftedToken]


class ChoiceExtension(TypedDict):
    """What OpenAI's API has no name for: the seed of a choice, and why it really ended."""

    finish_reason: str
    seed: int


class TopLogprob(TypedDict):
    """One of the best tokens at a position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """The token at a position, and the best ones."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """Log-probabilities of a chat's answer."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """Log-probabilities of a completion; offsets are characters of the text so far. A prompt's first token has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptToken(TypedDict):
    """A token at a position of a prompt, the prompt's own or one of the best; `rank` is null where it is not known."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptToken] | None]
"""By position of the prompt and token id; null for the first position."""


class FunctionCall(TypedDict):
    """A function that the model asks for; arguments are a JSON object as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call that the model asks for."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class FunctionDelta(TypedDict):
    """More of a function's arguments; the name stands in the first piece."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """A piece of a call: the first has id, type and name, those behind it go on with the arguments."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class ChatMessage(TypedDict):
    """The answer of a chat."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class ChatDelta(TypedDict, total=False):
    """What a chunk adds to the answer."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[ToolCallDelta]


class ChatChoice(TypedDict):
    """One answer of a chat."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishName
    paceline: ChoiceExtension
    token_ids: NotRequired[list[int]]


class ChatChunkChoice(TypedDict):
    """A piece of one answer of a chat."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishName | None
    paceline: NotRequired[ChoiceExtension]
    token_ids: NotRequired[list[int]]


class CompletionChoice(TypedDict):
    """One completion, or in a chunk a piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishName | None
    prompt_logprobs: NotRequired[PromptLogprobs]
    paceline: NotRequired[ChoiceExtension]
    token_ids: NotRequired[list[int]]
    prompt_token_ids: NotRequired[list[int]]


class _Reply(TypedDict):
    id: str
    created: int
    model: str
    system_fingerprint: str | None


class ChatReply(_Reply):
    """The answer to a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[PromptLogprobs]
    prompt_token_ids: NotRequired[list[int]]


class ChatChunk(_Reply):
    """An event of a chat's stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage | None]
    prompt_token_ids: NotRequired[list[int]]
    paceline: NotRequired[Drafts]


class CompletionReply(_Reply):
    """The answer to a prompt, or an event of its stream."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]
    paceline: NotRequired[Drafts]


class ModelReply(TypedDict):
    """A model by one of its names, `root` is its own; `paceline` tells its limits."""

    id: str
    root: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    paceline: dict[str, Any]


class ModelList(TypedDict):
    """The names of the model served."""

    object: Literal["list"]
    data: list[ModelReply]


class VersionReply(TypedDict):
    """The version of the server."""

    version: str


class TokenizeReply(TypedDict):
    """Token ids of a prompt; their texts where they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class TokenizerReply(TypedDict):
    """The special tokens of a tokenizer, and the chat template; null where there is none."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    chat_template: str | None


class DetokenizeReply(TypedDict):
    """The text of token ids."""

    prompt: str


class ActivityReply(TypedDict):
    """What pairs do; rates are means over the latest seconds, and `rounds_by_width` counts rounds of these."""

    running: int
    waiting: int
    slots: int
    queued_tokens: int
    free_blocks: int
    total_blocks: int
    tokens_per_second: float
    tokens_per_round: float
    rounds_by_width: dict[str, int]


class PairReply(TypedDict):
    """One pair."""

    pair_id: str
    ready: bool
    speculating: bool
    proposer: str
    model: str
    away: str
    activity: ActivityReply


class StatusReply(TypedDict):
    """All pairs together and, where nobody needs a key, one by one."""

    model: str
    models: list[str]
    pairs: int
    ready_pairs: int
    total: ActivityReply
    each: list[PairReply]
