"""Limits of a shell are told where they leave no room, and no others."""

import resource

import pytest

from services.common.preflight.limits import LIMITS, Limit, limit_problem


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.of)
def test_a_limit_that_is_too_low_is_told_with_what_raises_it(monkeypatch: pytest.MonkeyPatch, limit: Limit) -> None:
    for soft, most, told in ((0, limit.least - 1, True), (1, limit.least, False), (1, resource.RLIM_INFINITY, False)):
        free = resource.RLIM_INFINITY
        found = {one.number: (free, free) for one in LIMITS} | {limit.number: (soft, most)}
        monkeypatch.setattr(resource, "getrlimit", found.__getitem__)
        problem = limit_problem()
        assert (problem is not None) is told
        if problem is not None:
            assert problem.line.startswith(f"ulimit -{limit.flag}: at most {most:,} {limit.of} are allowed")
            assert problem.line.count("\n") == 0 and f"run ulimit -{limit.flag} " in problem.line
