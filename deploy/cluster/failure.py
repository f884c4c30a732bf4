"""Why a service of a pair cannot serve, and whether trying again may help; imports no ray."""

from dataclasses import dataclass

from services.common.request.errors import Code, PacelineError

LONGEST = 1000


@dataclass(frozen=True)
class Failure:
    """One line for people. final: a checkpoint or a setting was refused, and would be again."""

    message: str
    final: bool


def failure_of(service: str, error: BaseException, served: bool) -> Failure:
    """What to tell of an error of a service (target or drafter) that has served or never did."""
    text = " ".join((str(error) or repr(error)).split())[:LONGEST]
    refused = isinstance(error, PacelineError) and error.code is Code.INVALID_ARGUMENT
    # ModelError is a ValueError, as is what a settings class raises.
    final = not served and (refused or isinstance(error, ValueError))
    return Failure(f"the {service} {'failed' if served else 'cannot start'}: {text}", final)
