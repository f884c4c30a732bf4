"""Where an output stands to its thought: before, within or behind it, and which token its budget forces."""

from dataclasses import dataclass, replace

from services.common.request.constraint import Thought

ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class Mind:
    """Behind some tokens of an output; `count` are those of its thought. A function of these tokens alone."""

    thought: Thought | None
    thinks: bool
    may_think: bool
    count: int = 0

    @classmethod
    def at_start(cls, thought: Thought | None) -> "Mind":
        """Of an output without a token."""
        begun = thought is not None and thought.begun
        return cls(thought, begun, thought is not None and not begun)

    def after(self, token: int) -> "Mind":
        """Behind one more token."""
        thought = self.thought
        if thought is None or not (self.thinks or self.may_think):
            return self
        if self.thinks:
            return replace(self, thinks=token != thought.closing, count=self.count + 1)
        return replace(self, thinks=token == thought.opening, may_think=False)

    @property
    def forced(self) -> int | None:
        """The token that must come next, because the thought has spent its budget."""
        thought = self.thought
        if not self.thinks or thought is None or thought.budget is None or self.count < thought.budget:
            return None
        return thought.ending[min(self.count - thought.budget, len(thought.ending) - 1)]

    @property
    def free(self) -> int:
        """How many tokens at least will come before one is forced, whatever they are."""
        thought = self.thought
        if thought is None or thought.budget is None or not (self.thinks or self.may_think):
            return ENDLESS
        return max(thought.budget - self.count, 0) if self.thinks else thought.budget + 1
