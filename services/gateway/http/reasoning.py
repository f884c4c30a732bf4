"""Takes <think> blocks at the beginning of an answer apart; blanks around the block belong to neither side."""

from collections.abc import Callable

from services.gateway.http.output import (
    CallEnd,
    CallStart,
    Content,
    Ending,
    Gap,
    Part,
    Reasoning,
    Splitter,
    held,
    held_of,
)
from services.gateway.http.tools.calls import CallSplitter

OPEN, CLOSE = "<think>", "</think>"


class ReasoningSplitter:
    """Hands what comes behind the block to `after`.

    A call inside a block that is never closed ends it: models of Qwen3.5's kind forget the closing tag. Only the end
    of the text tells that the block is not closed, so such a call is passed on then.
    """

    def __init__(self, after: Splitter, inside: bool, calls: Callable[[], CallSplitter] | None = None) -> None:
        """`inside` says that the prompt has opened a block; `calls` makes what looks for calls inside one."""
        self._after = after
        self._calls = calls
        self._tags = [CLOSE, *(calls().marks if calls else [])]
        self._step = self._in_block if inside else self._before
        self._kept = ""
        self._blank = Gap()
        self._begun = False
        self._trial = _Trial(CallSplitter((), {}))
        self._passes = False

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""
        if self._passes:
            return self._after.push(text)
        self._kept += text
        return self._step()

    def finish(self, ending: Ending) -> list[Part]:
        """A block that is not closed is reasoning to its end; text that might have begun a block is content."""
        kept, self._kept = self._kept, ""
        if self._passes:
            return self._after.finish(ending)
        if self._step == self._before:
            return [*self._after.push(self._blank.taken() + kept), *self._after.finish(ending)]
        if self._step == self._trying:
            return self._tried(kept, ending)
        if self._step == self._in_block:
            return [*self._think(kept.rstrip()), *self._after.finish(ending)]
        return self._after.finish(ending)

    def _before(self) -> list[Part]:
        """Nothing but blanks has come, or the beginning of a tag."""
        start = self._kept.lstrip()
        self._blank.add(self._kept[: len(self._kept) - len(start)])
        self._kept = start
        if start.startswith(OPEN):
            self._blank.taken()
            self._kept = start.removeprefix(OPEN)
            self._step = self._in_block
            return self._step()
        if OPEN.startswith(start):
            return []
        self._passes, self._kept = True, ""
        return self._after.push(self._blank.taken() + start)

    def _in_block(self) -> list[Part]:
        kept = self._kept
        at, tag = min(((at, tag) for tag in self._tags if (at := kept.find(tag)) >= 0), default=(-1, ""))
        text = kept[: at if tag else len(kept) - held_of(kept, self._tags)]
        thought = text.rstrip()
        parts, self._kept = self._think(thought), kept[len(text) :]
        self._blank.add(text[len(thought) :])
        if tag == CLOSE:
            return parts + self._closed(kept[at + len(CLOSE) :])
        if not tag:
            return parts
        assert self._calls is not None
        self._trial, self._step = _Trial(self._calls()), self._trying
        return parts + self._trying()

    def _trying(self) -> list[Part]:
        """What may be a call in an unclosed block."""
        while True:
            text, closed, rest = self._kept.partition(CLOSE)
            certain = len(text) if closed else len(text) - held(text, CLOSE)
            self._trial.push(text[:certain])
            if not closed:
                self._kept = text[certain:]
                return [] if self._trial.hopeful else self._back()
            if not self._trial.open:
                return self._think(self._trial.raw().rstrip()) + self._closed(rest)
            self._trial.close()
            self._kept = rest

    def _back(self) -> list[Part]:
        """It was none: the thought goes on behind its first character."""
        raw = self._trial.raw()
        parts = self._think(raw[:1])
        self._kept, self._step = raw[1:] + self._kept, self._in_block
        return parts + self._in_block()

    def _tried(self, kept: str, ending: Ending) -> list[Part]:
        """The end of the text, with a block that is open."""
        trial = self._trial
        trial.push(kept)
        thought, parts = trial.finish(ending)
        if parts or trial.closed < 0:
            return [*self._think(thought.rstrip()), *(parts or self._after.finish(ending))]
        raw = trial.raw()
        before, behind = raw[: trial.closed], raw[trial.closed + len(CLOSE) :]
        return [*self._think(before.rstrip()), *self._closed(behind), *self._after.finish(ending)]

    def _think(self, thought: str) -> list[Part]:
        """More of the thought, and the blanks that waited before it, unless it begins here."""
        if not self._begun:
            thought = thought.lstrip()
        if not thought:
            return []
        blank, begun, self._begun = self._blank.taken(), self._begun, True
        return [Reasoning(blank + thought if begun else thought)]

    def _closed(self, rest: str) -> list[Part]:
        self._step, self._kept = self._behind, rest
        self._blank.taken()
        return self._behind()

    def _behind(self) -> list[Part]:
        """Blanks behind the block."""
        rest, self._kept = self._kept.lstrip(), ""
        self._passes = bool(rest)
        return self._after.push(rest) if rest else []


class _Trial:
    """Calls in a block that may yet be closed; `closed` is where, if the closing tag stands inside a call."""

    def __init__(self, calls: CallSplitter) -> None:
        """Takes what looks for calls."""
        self.closed = -1
        self._calls = calls
        self._raw: list[str] = []
        self._size = 0
        self._parts: list[Part] = []
        self._found = False

    @property
    def open(self) -> bool:
        """A call has begun that has not ended."""
        return self._calls.open

    @property
    def hopeful(self) -> bool:
        """There is a call, or what may become one."""
        return self._found or self._calls.undecided

    def raw(self) -> str:
        """All text so far."""
        return "".join(self._raw)

    def push(self, text: str) -> None:
        """More text."""
        if text:
            self._raw.append(text)
            self._size += len(text)
            found = self._calls.push(text)
            self._found = self._found or any(isinstance(part, CallEnd) for part in found)
            self._parts += found

    def close(self) -> None:
        """The closing tag of the block stands inside a call."""
        self.closed = self._size if self.closed < 0 else self.closed
        self.push(CLOSE)

    def finish(self, ending: Ending) -> tuple[str, list[Part]]:
        """The thought that goes on before the first call, and the calls with what is around them.

        Where the model did not end the text itself, the block might have gone on: all of it is a thought then.
        """
        self._parts += self._calls.finish(ending)
        whole = [index for index, part in enumerate(self._parts) if isinstance(part, CallEnd)]
        if not whole or ending is not Ending.ITSELF:
            return self.raw(), []
        first = max(index for index in range(whole[0]) if isinstance(self._parts[index], CallStart))
        before = (part.text for part in self._parts[:first] if isinstance(part, Content))
        return "".join(before), self._parts[first:]


def opened(prompt_end: str) -> bool:
    """Whether a prompt ends with the beginning of a block, as some templates make it."""
    return prompt_end.rstrip().endswith(OPEN)
