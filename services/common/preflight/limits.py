"""Whether the limits that a shell sets for its processes leave room for serving; imports no torch."""

import resource
from dataclasses import dataclass

from services.common.preflight.problem import Problem


@dataclass(frozen=True)
class Limit:
    """One limit: its number for the system, the flag of ulimit and its unit, and the least that is served under."""

    number: int
    flag: str
    of: str
    unit: int
    least: int


LIMITS = (
    Limit(resource.RLIMIT_NOFILE, "n", "open files", 1, 64),
    Limit(resource.RLIMIT_FSIZE, "f", "bytes of a file", 1024, 1 << 30),
    Limit(resource.RLIMIT_AS, "v", "bytes of address space", 1024, 8 << 30),
)
"""What is shared between processes counts as a file; libraries of torch and Ray alone take gigabytes of addresses."""


def limit_problem() -> Problem | None:
    """The first limit that is too low, as far as this process may raise it."""
    for limit in LIMITS:
        _, most = resource.getrlimit(limit.number)
        if most != resource.RLIM_INFINITY and most < limit.least:
            sentence = f"at most {most:,} {limit.of} are allowed, and {limit.least:,} are needed"
            remedy = f"run ulimit -{limit.flag} {limit.least // limit.unit} before, as root if it is refused"
            return Problem(f"ulimit -{limit.flag}", sentence, remedy)
    return None
