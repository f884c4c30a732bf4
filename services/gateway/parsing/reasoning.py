"""Takes <think> blocks at the beginning of an answer apart; blanks around the block belong to neither side."""

from collections.abc import Callable

from services.gateway.parsing.calls import CallSplitter
from services.gateway.parsing.output import (
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
from services.gateway.prompts.thought import CLOSE, OPEN

BETWEEN = "\n\n"
"""Stands between the thoughts of two blocks."""


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
        self._step: Callable[[list[Part]], bool] = self._in_block if inside else self._before
        self._kept = ""
        self._blank = Gap()
        self._begun = self._passes = False
        self._join = ""
        self._trial = _Trial(CallSplitter((), {}))

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""
        if self._passes:
            return self._after.push(text) if text else []
        parts: list[Part] = []
        self._kept += text
        while self._step(parts):
            pass
        return parts

    def finish(self, ending: Ending) -> list[Part]:
        """A block that is not closed is reasoning to its end; text that might have begun a block is content."""
        parts: list[Part] = []
        while self._step == self._trying and not self._tried(parts, ending):
            while self._step(parts):
                pass
        kept, self._kept = self._kept, ""
        if self._step == self._in_block:
            self._think(kept.rstrip(), parts)
        elif self._step == self._before:
            parts += self._after.push(self._blank.taken() + kept)
        else:
            parts += self._after.push(kept)
        return parts + self._after.finish(ending)

    def _passing(self, parts: list[Part]) -> bool:
        """Passes on all text, once no thought can begin any more."""
        text, self._kept, self._passes = self._kept, "", True
        parts += self._after.push(text) if text else []
        return False

    def _before(self, parts: list[Part]) -> bool:
        """Nothing but blanks has come, or the beginning of a tag."""
        start = self._kept.lstrip()
        self._blank.add(self._kept[: len(self._kept) - len(start)])
        self._kept = start
        if start.startswith(OPEN):
            self._blank.taken()
            self._kept, self._step = start.removeprefix(OPEN), self._in_block
        elif OPEN.startswith(start):
            return False
        else:
            self._kept, self._step = self._blank.taken() + start, self._passing
        return True

    def _in_block(self, parts: list[Part]) -> bool:
        if not self._begun and self._opened_again():
            return False
        kept = self._kept
        at, tag = min(((at, tag) for tag in self._tags if (at := kept.find(tag)) >= 0), default=(-1, ""))
        text = kept[: at if tag else len(kept) - held_of(kept, self._tags)]
        thought = text.rstrip()
        self._think(thought, parts)
        self._kept = kept[len(text) :]
        self._blank.add(text[len(thought) :])
        if tag == CLOSE:
            self._close(kept[at + len(CLOSE) :])
        elif tag:
            assert self._calls is not None
            self._trial, self._step = _Trial(self._calls()), self._trying
        return bool(tag)

    def _opened_again(self) -> bool:
        """Takes away tags that open the open block once more; True when more text must tell."""
        start = self._kept.lstrip()
        while start.startswith(OPEN):
            start = self._kept = start.removeprefix(OPEN).lstrip()
        return bool(start) and OPEN.startswith(start)

    def _trying(self, parts: list[Part]) -> bool:
        """What may be a call in an unclosed block."""
        text, closed, rest = self._kept.partition(CLOSE)
        certain = len(text) if closed else len(text) - held(text, CLOSE)
        self._trial.push(text[:certain])
        if not closed:
            self._kept = text[certain:]
            if not self._trial.hopeful:
                self._back(parts)
                return True
            return False
        if self._trial.open:
            self._trial.close()
            self._kept = rest
        else:
            self._think(self._trial.raw().rstrip(), parts)
            self._close(rest)
        return True

    def _back(self, parts: list[Part]) -> None:
        """It was none: the thought goes on behind its first character."""
        raw = self._trial.raw()
        self._think(raw[:1], parts)
        self._kept, self._step = raw[1:] + self._kept, self._in_block

    def _tried(self, parts: list[Part], ending: Ending) -> bool:
        """The end of the text, with a block that is open; False where the block was closed after all."""
        trial, raw = self._trial, self._trial.raw() + self._kept
        trial.push(self._kept)
        self._kept = ""
        thought, found = trial.finish(ending)
        if not found and trial.closed >= 0:
            self._think(raw[: trial.closed].rstrip(), parts)
            self._close(raw[trial.closed + len(CLOSE) :])
            return False
        self._think(thought.rstrip(), parts)
        parts += found
        self._step = self._ended
        return True

    def _ended(self, _: list[Part]) -> bool:
        return False

    def _think(self, thought: str, parts: list[Part]) -> None:
        """More of the thought, and the blanks that waited before it, unless it begins here."""
        if not self._begun:
            thought = thought.lstrip()
        if thought:
            blank, begun, self._begun = self._blank.taken(), self._begun, True
            parts.append(Reasoning((blank if begun else self._join) + thought))

    def _close(self, rest: str) -> None:
        self._step, self._kept = self._behind, rest
        self._blank.taken()

    def _behind(self, _: list[Part]) -> bool:
        """Blanks behind the block, or another block, which goes on with the thought."""
        rest = self._kept = self._kept.lstrip()
        if rest.startswith(OPEN):
            self._kept, self._step = rest.removeprefix(OPEN), self._in_block
            self._join, self._begun = (BETWEEN if self._begun else self._join), False
        elif OPEN.startswith(rest):
            return False
        else:
            self._step = self._passing
        return True


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
