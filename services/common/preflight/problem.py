"""What a check finds: the file at fault, what is wrong with it, and what to do."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One finding, as one line. fatal: nothing can be served; else it serves, and people should know."""

    file: str
    sentence: str
    remedy: str = ""
    fatal: bool = True

    @property
    def line(self) -> str:
        """All of it for people."""
        parts = (f"{self.file}: {self.sentence}" if self.file else self.sentence, self.remedy)
        return "; ".join(" ".join(part.split()) for part in parts if part)
