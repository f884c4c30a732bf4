"""Takes <think> blocks at the beginning of an answer apart; blanks around the block belong to neither side."""

from services.gateway.http.output import Content, Part, Reasoning, Splitter, held

OPEN, CLOSE = "<think>", "</think>"


class ReasoningSplitter:
    """Hands what comes behind the block to `after`; `inside` says that the prompt has opened one."""

    def __init__(self, after: Splitter, inside: bool) -> None:
        """Starts with no text."""
        self._after = after
        self._step = self._in_block if inside else self._before
        self._kept = ""
        self._begun = False

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""
        self._kept += text
        return self._step()

    def finish(self) -> list[Part]:
        """A block that is not closed is reasoning to its end; text that might have begun a block is content."""
        kept, self._kept = self._kept, ""
        if self._step == self._in_block:
            kept = kept.rstrip() if self._begun else kept.strip()
            return [*([Reasoning(kept)] if kept else []), *self._after.finish()]
        return [*self._after.push(kept if self._step == self._before else ""), *self._after.finish()]

    def _before(self) -> list[Part]:
        """Nothing but blanks has come, or the beginning of a tag."""
        start = self._kept.lstrip()
        if start.startswith(OPEN):
            self._kept = start.removeprefix(OPEN)
            self._step = self._in_block
            return self._step()
        if OPEN.startswith(start):
            return []
        self._step = self._behind
        self._begun = True
        return self._behind()

    def _in_block(self) -> list[Part]:
        thought, closed, rest = self._kept.partition(CLOSE)
        if closed:
            self._kept = rest
        else:
            certain = len(thought) - held(thought, CLOSE)
            certain = len(thought[:certain].rstrip())
            self._kept, thought = thought[certain:], thought[:certain]
        thought = thought.rstrip() if closed else thought
        thought = thought if self._begun else thought.lstrip()
        self._begun = self._begun or bool(thought)
        parts: list[Part] = [Reasoning(thought)] if thought else []
        if not closed:
            return parts
        self._step, self._begun = self._behind, False
        return parts + self._behind()

    def _behind(self) -> list[Part]:
        rest, self._kept = self._kept, ""
        rest = rest if self._begun else rest.lstrip()
        self._begun = self._begun or bool(rest)
        return self._after.push(rest) if rest else []


def opened(prompt_end: str) -> bool:
    """Whether a prompt ends with the beginning of a block, as some templates make it."""
    return prompt_end.rstrip().endswith(OPEN)


def without_reasoning(parts: list[Part]) -> list[Part]:
    """Thoughts as a part of the content."""
    return [Content(part.text) if isinstance(part, Reasoning) else part for part in parts]
