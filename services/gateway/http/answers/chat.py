"""POST /v1/chat/completions: the next message of a chat."""

import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.answer import FINISH, Answer, extension
from services.gateway.http.answers.logprobs import Spell, WrittenChat, chat_logprobs
from services.gateway.http.answers.thoughts import ThoughtTokens
from services.gateway.http.reading.convert import tools_of
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.http.schema.replies import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    FinishName,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from services.gateway.http.server.exchange import Exchange
from services.gateway.parsing.calls import CallSplitter
from services.gateway.parsing.form import Form
from services.gateway.parsing.output import (
    AllContent,
    CallEnd,
    CallPiece,
    CallStart,
    Content,
    Ending,
    Part,
    Reasoning,
    Splitter,
)
from services.gateway.parsing.reasoning import ReasoningSplitter, opened
from services.gateway.prompts.tokenizer import PROMPT_END
from services.gateway.streams.events import Delta, Final
from services.gateway.targets.messages import PositionLogprobs

ENDINGS = {FinishReason.STOP_TOKEN: Ending.ITSELF, FinishReason.STOP_STRING: Ending.STOPPED}


class ChatAnswer(Answer):
    """Content, thoughts and calls of each choice."""

    prefix = "chatcmpl"
    best = "top_logprobs"

    def __init__(self, body: ChatBody, exchange: Exchange, spell: Spell, forms: Sequence[Form]) -> None:
        """Nothing has come yet; `forms` are those in which the model may write calls."""
        super().__init__(body, exchange, spell, body.prompt_logprobs)
        self._forms = forms
        self.scored = bool(body.logprobs)
        whole = body.paceline is not None and body.paceline.reasoning is False
        self._splits_reasoning = not (whole or body.separate_reasoning is False)
        told = body.include_reasoning is not False
        self._schemas = {tool.function.name: tool.function.parameters or {} for tool in tools_of(body)}
        self._thinks = self._prompt_told = False
        one_call = body.parallel_tool_calls is False
        self._choices: defaultdict[int, _Choice] = defaultdict(lambda: _Choice(self._splitter(), one_call, told))
        self._thoughts: defaultdict[int, ThoughtTokens] = defaultdict(lambda: ThoughtTokens(spell))

    def kind(self) -> str:
        """Chunks have a name of their own."""
        return "chat.completion.chunk" if self.streams else "chat.completion"

    def begin(self, choice: int, prompt: tuple[int, ...]) -> None:
        """Looks whether the prompt has opened a <think> block."""
        super().begin(choice, prompt)
        self._thinks = opened("".join(self._spell(token)[0] for token in prompt[-PROMPT_END:]))

    def pieces(self, choice: int, delta: Delta) -> Iterable[ChatChunkChoice]:
        """The parts that became certain; the first piece of a choice states the role."""
        state = self._choices[choice]
        if self._splits_reasoning:
            self._thoughts[choice].push(delta.token_ids)
        parts = state.wanted(state.splitter.push(delta.text))
        state.take(parts)
        if not self.streams:
            if self.scored:
                state.positions.add(delta.logprobs, self._spell)
            return
        logprobs = self._logprobs(delta.logprobs)
        deltas = state.deltas(parts)
        told = [*delta.token_ids] if self._tells_ids else []
        if not deltas and (delta.logprobs or self._drafts or told):
            deltas = [state.nothing()]
        for piece in deltas:
            chunk = _chunk(choice, piece, logprobs)
            yield {**chunk, "token_ids": told} if self._tells_ids else chunk
            logprobs, told = None, []

    def last(self, choice: int, final: Final) -> Iterable[ChatChunkChoice]:
        """What the end made certain, and why it ended."""
        state = self._choices[choice]
        parts = state.wanted(state.splitter.finish(ENDINGS.get(final.reason, Ending.CUT)))
        state.take(parts)
        if self.streams:
            for piece in state.deltas(parts):
                yield _chunk(choice, piece, None)
            ended = _chunk(choice, state.nothing(), None)
            yield {**ended, "finish_reason": state.finish(final), "paceline": extension(final)}

    def whole_choice(self, choice: int, final: Final) -> ChatChoice:
        """The whole message."""
        state = self._choices[choice]
        whole: ChatChoice = {
            "index": choice,
            "message": state.message(),
            "logprobs": None,
            "finish_reason": state.finish(final),
            "paceline": extension(final),
        }
        return {**whole, "token_ids": self._ids[choice]} if self._tells_ids else whole

    def written(self, choice: int) -> bytes:
        """Those of the choice."""
        return self._choices[choice].positions.json()

    def extra(self) -> dict[str, Any]:
        """What is told of the prompt, which all choices share."""
        found: dict[str, Any] = {}
        if self._prompt_logprobs is not None:
            found["prompt_logprobs"] = self._prompts.told(0, self._prompt_logprobs, self._spell)
        return found | self.first_told()

    def first_told(self) -> dict[str, Any]:
        """The token ids of the prompt."""
        if not self._tells_ids or self._prompt_told:
            return {}
        self._prompt_told = True
        return {"prompt_token_ids": [*self._prompts.ids(0)]}

    def thought_tokens(self) -> int:
        """Counted where thoughts are taken apart."""
        states = self._choices.items()
        return sum(self._thoughts[choice].count(state.thought, not state.answered) for choice, state in states)

    def _splitter(self) -> Splitter:
        after: Splitter = self._calls() if self._schemas else AllContent()
        inside = self._calls if self._schemas else None
        return ReasoningSplitter(after, self._thinks, inside) if self._splits_reasoning else after

    def _calls(self) -> CallSplitter:
        return CallSplitter(self._forms, self._schemas)

    def _logprobs(self, positions: Iterable[PositionLogprobs]) -> ChatLogprobs | None:
        return chat_logprobs(positions, self._spell) if self.scored else None


class _Choice:
    """One choice as far as it has come."""

    def __init__(self, splitter: Splitter, one_call: bool, tells_thoughts: bool = True) -> None:
        self.splitter = splitter
        self._tells_thoughts = tells_thoughts
        self._one_call = one_call
        self._full = False
        self.positions = WrittenChat()
        self._told = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._arguments: list[str] = []
        self._streamed = -1
        self._cut = False

    @property
    def thought(self) -> str:
        """The thought so far."""
        return "".join(self._reasoning)

    @property
    def answered(self) -> bool:
        """Something that is no thought has come."""
        return bool(self._content or self._calls)

    def wanted(self, parts: list[Part]) -> list[Part]:
        """The parts without calls behind the first, where the client wants no second one."""
        if not self._one_call:
            return parts
        found: list[Part] = []
        for part in parts:
            if not self._full or isinstance(part, Content | Reasoning):
                found.append(part)
            self._full = self._full or isinstance(part, CallEnd)
        return found

    def take(self, parts: Iterable[Part]) -> None:
        """Keeps parts for the whole message, in which only whole calls stand."""
        for part in parts:
            if isinstance(part, CallPiece):
                self._arguments.append(part.text)
            elif isinstance(part, Content):
                self._content.append(part.text)
            elif isinstance(part, Reasoning):
                self._reasoning.append(part.text)
            elif isinstance(part, CallStart):
                self._arguments = []
                self._calls.append(_tool_call(part.name))
            elif isinstance(part, CallEnd):
                self._calls[-1]["function"]["arguments"] = "".join(self._arguments)
            else:
                self._calls.pop()
                self._cut = True

    def deltas(self, parts: Iterable[Part]) -> list[ChatDelta]:
        """Parts as they stand in chunks; arguments that came together are one piece."""
        found: list[ChatDelta] = []
        for kind, several in itertools.groupby(parts, type):
            for delta in self._chunks(kind, [*several]):
                found.append(delta if self._told else {"role": "assistant", **delta})
                self._told = True
        return found

    def _chunks(self, kind: type[Part], parts: Sequence[Any]) -> Iterable[ChatDelta]:
        if kind is CallPiece:
            yield {"tool_calls": [self._delta({"arguments": "".join(part.text for part in parts)})]}
        elif kind is Content:
            yield {"content": "".join(part.text for part in parts)}
        elif kind is Reasoning and self._tells_thoughts:
            yield {"reasoning_content": "".join(part.text for part in parts)}
        elif kind is CallStart:
            for part in parts:
                self._streamed += 1
                begun = _tool_call(part.name)
                function: FunctionDelta = {"name": part.name, "arguments": ""}
                yield {"tool_calls": [{**self._delta(function), "id": begun["id"], "type": "function"}]}

    def _delta(self, function: FunctionDelta) -> ToolCallDelta:
        return {"index": self._streamed, "function": function}

    def nothing(self) -> ChatDelta:
        """A piece without a part; the first one states the role nevertheless."""
        told, self._told = self._told, True
        return {} if told else {"role": "assistant", "content": ""}

    def finish(self, final: Final) -> FinishName:
        """OpenAI's name for its end."""
        ended_by_itself = final.reason in (FinishReason.STOP_TOKEN, FinishReason.STOP_STRING)
        return "tool_calls" if self._calls and not self._cut and ended_by_itself else FINISH[final.reason]

    def message(self) -> ChatMessage:
        """The whole message; content is null beside calls that came without any."""
        content = "".join(self._content)
        message: ChatMessage = {
            "role": "assistant",
            "content": content if content or not self._calls else None,
            "refusal": None,
        }
        if self._reasoning and self._tells_thoughts:
            message["reasoning_content"] = self.thought
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def _tool_call(name: str) -> ToolCall:
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": {"name": name, "arguments": ""}}


def _chunk(choice: int, delta: ChatDelta, logprobs: ChatLogprobs | None) -> ChatChunkChoice:
    return {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": None}
