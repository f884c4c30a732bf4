"""Cases that cost less than a test does: one test runs hundreds, and names the one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

Check = Callable[..., None]


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Check], Check]:
    """Run a test for each case, as `pytest.mark.parametrize` does, but in one item of pytest.

    An item costs milliseconds in the process that runs it, in all that collect it, and where results meet; many checks
    of a table take a tenth of that. Cases share what fixtures of the test made, so they leave it as it was. The first
    that fails ends the test, and a note says which it was.

    Raises:
        ValueError: there is no case, so that the test could not fail.
    """
    own = (names,) if isinstance(names, str) else tuple(names)
    rows = [(case,) if isinstance(names, str) else tuple(case) for case in cases]
    if not rows:
        raise ValueError(f"no case of {', '.join(own)}")

    def decorate(function: Check) -> Check:
        asked = signature(function)

        @wraps(function)
        def every(**given: Any) -> None:
            for place, row in enumerate(rows):
                case = dict(zip(own, row, strict=True))
                try:
                    function(**given, **case)
                except BaseException as error:
                    error.add_note(f"case {place} of {len(rows)}: {case!r}")
                    raise

        others = [each for name, each in asked.parameters.items() if name not in own]
        every.__signature__ = asked.replace(parameters=others)  # type: ignore[attr-defined]
        return every

    return decorate
