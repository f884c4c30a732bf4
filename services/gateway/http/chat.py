"""POST /v1/chat/completions: the next message of a chat."""

import secrets
from collections import defaultdict
from collections.abc import Iterable

from services.common.request.sampling import FinishReason
from services.gateway.generation import Delta, Final
from services.gateway.http.answer import FINISH, Answer, extension
from services.gateway.http.bodies import ChatBody
from services.gateway.http.convert import tools_of
from services.gateway.http.exchange import Exchange
from services.gateway.http.logprobs import Spell, chat_logprobs
from services.gateway.http.output import AllContent, Call, Content, Part, Reasoning, Splitter
from services.gateway.http.reasoning import ReasoningSplitter, opened
from services.gateway.http.replies import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    FinishName,
    ToolCall,
)
from services.gateway.http.tools.calls import CallSplitter
from services.gateway.targets.messages import PositionLogprobs

PROMPT_END = 8
"""Tokens at the end of a prompt that may open a <think> block."""


class ChatAnswer(Answer):
    """Content, thoughts and calls of each choice."""

    prefix = "chatcmpl"

    def __init__(self, body: ChatBody, exchange: Exchange, spell: Spell) -> None:
        """Nothing has come yet."""
        super().__init__(body, exchange, spell)
        self._wants_logprobs = bool(body.logprobs)
        self._splits_reasoning = not (body.paceline and body.paceline.reasoning is False)
        self._schemas = {tool.function.name: tool.function.parameters or {} for tool in tools_of(body)}
        self._thinks = False
        self._choices: defaultdict[int, _Choice] = defaultdict(lambda: _Choice(self._splitter()))

    def kind(self) -> str:
        """Chunks have a name of their own."""
        return "chat.completion.chunk" if self.streams else "chat.completion"

    def begin(self, prompt: tuple[int, ...]) -> None:
        """Looks whether the prompt has opened a <think> block."""
        self._thinks = opened("".join(self._spell(token)[0] for token in prompt[-PROMPT_END:]))

    def pieces(self, choice: int, delta: Delta) -> Iterable[ChatChunkChoice]:
        """The parts that became certain; the first piece of a choice states the role."""
        state = self._choices[choice]
        parts = state.splitter.push(delta.text)
        state.take(parts)
        if not self.streams:
            state.positions += delta.logprobs
            return
        logprobs = self._logprobs(delta.logprobs)
        deltas = state.deltas(parts)
        if not deltas and (delta.logprobs or self._drafts):
            deltas = [state.nothing()]
        for piece in deltas:
            yield _chunk(choice, piece, logprobs)
            logprobs = None

    def last(self, choice: int, final: Final) -> Iterable[ChatChunkChoice]:
        """What the end made certain, and why it ended."""
        state = self._choices[choice]
        parts = state.splitter.finish()
        state.take(parts)
        if self.streams:
            for piece in state.deltas(parts):
                yield _chunk(choice, piece, None)
            ended = _chunk(choice, state.nothing(), None)
            yield {**ended, "finish_reason": state.finish(final), "paceline": extension(final)}

    def whole_choice(self, choice: int, final: Final) -> ChatChoice:
        """The whole message."""
        state = self._choices[choice]
        return {
            "index": choice,
            "message": state.message(),
            "logprobs": self._logprobs(state.positions),
            "finish_reason": state.finish(final),
            "paceline": extension(final),
        }

    def _splitter(self) -> Splitter:
        after: Splitter = CallSplitter(self._schemas) if self._schemas else AllContent()
        return ReasoningSplitter(after, self._thinks) if self._splits_reasoning else after

    def _logprobs(self, positions: Iterable[PositionLogprobs]) -> ChatLogprobs | None:
        return chat_logprobs(positions, self._spell) if self._wants_logprobs else None


class _Choice:
    """One choice as far as it has come."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self.positions: list[PositionLogprobs] = []
        self._told = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []

    def take(self, parts: Iterable[Part]) -> None:
        """Keeps parts for the whole message."""
        for part in parts:
            if isinstance(part, Content):
                self._content.append(part.text)
            elif isinstance(part, Reasoning):
                self._reasoning.append(part.text)
            else:
                self._calls.append(_tool_call(part))

    def deltas(self, parts: Iterable[Part]) -> list[ChatDelta]:
        """Parts that were taken last as they stand in chunks."""
        listed = [*parts]
        number = len(self._calls) - sum(isinstance(part, Call) for part in listed)
        found: list[ChatDelta] = []
        for part in listed:
            delta: ChatDelta
            if isinstance(part, Content):
                delta = {"content": part.text}
            elif isinstance(part, Reasoning):
                delta = {"reasoning_content": part.text}
            else:
                delta = {"tool_calls": [{"index": number, **self._calls[number]}]}
                number += 1
            found.append(delta if self._told else {"role": "assistant", **delta})
            self._told = True
        return found

    def nothing(self) -> ChatDelta:
        """A piece without a part; the first one states the role nevertheless."""
        told, self._told = self._told, True
        return {} if told else {"role": "assistant", "content": ""}

    def finish(self, final: Final) -> FinishName:
        """OpenAI's name for its end."""
        ended_by_itself = final.reason in (FinishReason.STOP_TOKEN, FinishReason.STOP_STRING)
        return "tool_calls" if self._calls and ended_by_itself else FINISH[final.reason]

    def message(self) -> ChatMessage:
        """The whole message; content is null beside calls that came without any."""
        content = "".join(self._content)
        message: ChatMessage = {
            "role": "assistant",
            "content": content if content or not self._calls else None,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def _tool_call(call: Call) -> ToolCall:
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _chunk(choice: int, delta: ChatDelta, logprobs: ChatLogprobs | None) -> ChatChunkChoice:
    return {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": None}
