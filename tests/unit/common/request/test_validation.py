"""The validator refuses what is out of range by field, and nothing else: invariant I8."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from services.common.pb.paceline.v1 import types_pb2
from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.limits import LIMITS
from services.common.request.sampling import RANGES, FinishReason, SamplingParams, SpeculationParams, StopParams
from services.common.request.sampling_convert import (
    finish_from_pb,
    finish_to_pb,
    sampling_from_pb,
    sampling_to_pb,
    speculation_from_pb,
    speculation_to_pb,
    stopping_from_pb,
    stopping_to_pb,
)
from services.common.request.validation import (
    Bounds,
    check_key,
    check_logprobs,
    check_options,
    check_priority,
    check_prompt,
    check_sampling,
    check_speculation,
    check_stopping,
    plain,
)
from tests.support.cases import each

VOCABULARY = 100
BAD_SAMPLING = {
    "temperature": (-0.1, 2.1, 1e-9, math.nan, math.inf, -math.inf),
    "top_p": (0.0, -1.0, 1.1, math.nan, math.inf),
    "top_k": (-1, 2**32),
    "min_p": (-0.1, 1.1, math.nan),
    "seed": (-1, 2**64),
    "repetition_penalty": (0.0, 1e-9, 10.1, math.nan, -1.0),
    "presence_penalty": (-2.1, 2.1, math.nan, math.inf),
    "frequency_penalty": (-2.1, 2.1, math.nan),
    "logit_bias": (((100, 1.0),), ((-1, 1.0),), ((1, 101.0),), ((1, math.nan),), tuple((i, 0.0) for i in range(1025))),
}
BAD_STOPPING = {
    "max_tokens": (0, -1, 2**31),
    "min_tokens": (-1, 11),
    "stop": (("",), ("x" * 257,), ("ä" * 129,), ("x",) * 17, ("x",) * 10_000),
    "stop_token_ids": ((100,), (-1,), (1,) * 65),
}


def refused(check: Callable[[], object]) -> PacelineError:
    with pytest.raises(PacelineError) as error:
        check()
    assert error.value.code is Code.INVALID_ARGUMENT
    return error.value


@each(("field", "value"), [(name, value) for name, bad in BAD_SAMPLING.items() for value in bad])
def test_sampling_out_of_range_is_refused_by_field(field: str, value: object) -> None:
    sampling = replace(SamplingParams(), **{field: value})  # type: ignore[arg-type]
    assert refused(lambda: check_sampling(sampling, VOCABULARY)).field == f"sampling.{field}"


@each(("field", "value"), [(name, value) for name, bad in BAD_STOPPING.items() for value in bad])
def test_stopping_out_of_range_is_refused_by_field(field: str, value: object) -> None:
    stopping = replace(StopParams(10), **{field: value})  # type: ignore[arg-type]
    assert refused(lambda: check_stopping(stopping, VOCABULARY)).field == f"stopping.{field}"


def test_the_ends_of_every_range_are_allowed() -> None:
    check_sampling(
        SamplingParams(2.0, 1.0, 2**32 - 1, 1.0, 2**64 - 1, 10.0, 2.0, -2.0, ((0, -100.0), (99, 100.0))), VOCABULARY
    )
    check_sampling(SamplingParams(1e-5, 1e-7, 0, 0.0, 0, 0.01, -2.0, 2.0), VOCABULARY)
    check_stopping(StopParams(1, 1, ("x" * 256,) * 16, (99,) * 64), VOCABULARY)
    check_speculation(SpeculationParams(True, 0))
    check_logprobs(20)
    check_logprobs(None)
    check_priority(-100)
    check_key("k" * 128)


def test_the_rest_is_refused_by_field() -> None:
    assert refused(lambda: check_logprobs(21)).field == "logprobs"
    assert refused(lambda: check_priority(101)).field == "priority"
    assert refused(lambda: check_key("ä" * 65)).field == "idempotency_key"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda: check_sampling(sampling_from_pb(types_pb2.Sampling(temperature=2.1)), VOCABULARY),
            "sampling.temperature: 2.1 is neither 0 (greedy) nor in [0.00001, 2]",
        ),
        (
            lambda: check_sampling(sampling_from_pb(types_pb2.Sampling(repetition_penalty=1e-3)), VOCABULARY),
            "sampling.repetition_penalty: 0.001 is not in [0.01, 10]",
        ),
        (
            lambda: check_sampling(replace(SamplingParams(), top_p=math.nan), VOCABULARY),
            "sampling.top_p: nan is not in (0, 1]",
        ),
        (
            lambda: check_stopping(StopParams(0), VOCABULARY),
            "stopping.max_tokens: 0 is not in [1, 2147483647]",
        ),
        (
            lambda: check_sampling(replace(SamplingParams(), seed=2**64), VOCABULARY),
            "sampling.seed: 18446744073709551616 is not in [0, 18446744073709551615]",
        ),
        (lambda: check_priority(101), "priority: 101 is not in [-100, 100]"),
    ],
)
def test_messages_state_every_value_that_is_allowed_and_all_its_digits(
    check: Callable[[], object], message: str
) -> None:
    assert refused(check).message == message


def test_the_bounds_that_messages_state_are_allowed_as_the_wire_carries_them() -> None:
    """Its numbers are float32, so 0.00001 arrives a little smaller."""
    check_sampling(sampling_from_pb(types_pb2.Sampling(temperature=0.00001, repetition_penalty=0.01)), VOCABULARY)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (-0.0, "0"), (1e-5, "0.00001"), (0.1, "0.1"), (-2.5, "-2.5"), (1e-30, "1e-30"), (3.4e38, "3.4e+38"),
     (math.inf, "inf"), (math.nan, "nan"), (2**40, "1099511627776"), (123456.79, "123456.79")],
)  # fmt: skip
def test_numbers_are_written_plainly(number: float, text: str) -> None:
    assert plain(number) == text


def test_prompts_are_checked_against_the_model() -> None:
    bounds = Bounds(VOCABULARY, 16)
    check_prompt([0, 99], 2, bounds)
    check_prompt([1] * 15, 1, bounds)
    assert refused(lambda: check_prompt([], 0, bounds)).field == "prompt"
    assert refused(lambda: check_prompt([1, 100], 2, bounds)).field == "prompt"
    assert refused(lambda: check_prompt([1], 0, bounds)).field == "prompt_length"
    assert refused(lambda: check_prompt([1], 2, bounds)).field == "prompt_length"
    assert refused(lambda: check_prompt([1] * 16, 16, bounds, "token_ids")).reason is Reason.CONTEXT_LIMIT


def test_counts_are_checked_before_contents_are_read() -> None:
    stopping = types_pb2.Stopping(stop=[""] * 2_000_000)
    began = time.process_time()
    assert refused(lambda: stopping_from_pb(stopping, 1)).field == "stopping.stop"
    assert time.process_time() - began < 5.0
    bias = types_pb2.Sampling(logit_bias=dict.fromkeys(range(LIMITS.logit_bias + 1), 0.0))
    assert refused(lambda: sampling_from_pb(bias)).field == "sampling.logit_bias"


def test_the_wire_has_every_sampling_parameter_and_no_other() -> None:
    names = [field.name for field in fields(SamplingParams)]
    assert set(types_pb2.Sampling.DESCRIPTOR.fields_by_name) == set(names)
    assert {*RANGES, "logit_bias"} == set(names)
    assert all(allowed.holds(getattr(SamplingParams(), name)) for name, allowed in RANGES.items())


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_range_are_judged_and_named(name: str) -> None:
    def judged(value: Any) -> str:
        changed: dict[str, Any] = {name: value}
        try:
            check_sampling(replace(SamplingParams(), **changed), VOCABULARY)
        except PacelineError as error:
            return error.field
        return ""

    allowed, named = RANGES[name], f"sampling.{name}"
    assert judged(allowed.low) == (named if allowed.open else "")
    assert judged(allowed.high) == ""
    assert judged(allowed.high + 1) == judged(math.nan) == named


def test_values_survive_the_wire() -> None:
    sampling = SamplingParams(0.5, 0.25, 3, 0.125, 2**63 + 1, 1.5, 0.5, -0.5, ((1, 2.0), (7, -3.0)))
    assert sampling_from_pb(sampling_to_pb(sampling)) == sampling
    assert sampling_from_pb(types_pb2.Sampling()) == SamplingParams()
    stopping = StopParams(5, 2, (), (1, 2), True)
    assert stopping_from_pb(stopping_to_pb(stopping), 9) == stopping
    assert stopping_from_pb(types_pb2.Stopping(), 9) == StopParams(9)
    for speculation in (SpeculationParams(), SpeculationParams(True), SpeculationParams(False, 0)):
        assert speculation_from_pb(speculation_to_pb(speculation)) == speculation
    for reason in FinishReason:
        assert finish_from_pb(finish_to_pb(reason)) is reason
    assert finish_from_pb(finish_to_pb(None)) is None


def test_stop_strings_are_never_sent_to_a_target() -> None:
    assert not stopping_to_pb(StopParams(5, 0, ("secret",))).stop


def random_float(numbers: random.Random) -> float:
    return numbers.choice(
        [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, 3e38, numbers.uniform(-3, 3), numbers.random()]
    )


def test_random_options_are_refused_by_field_or_kept_finite(
    seed: int, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    numbers = random.Random(seed)
    accepted = 0
    cases = 20_000 if full else 2_000
    for _ in range(cases):
        values = [
            random_float(numbers) if numbers.random() < 0.2 else default for default in (0.5, 0.5, 0.5, 1.0, 0.0, 0.0)
        ]
        sampling = SamplingParams(
            values[0], values[1], numbers.randint(0, 9), values[2], 0, values[3], values[4], values[5],
            tuple((numbers.randint(0, 104), random_float(numbers)) for _ in range(numbers.choice([0, 0, 0, 1, 3]))),
        )  # fmt: skip
        stopping = StopParams(
            numbers.choice([1, 5, 10, 0]), numbers.choice([0, 1, 6]), ("x",) * numbers.choice([0, 1, 16, 17]),
            tuple(numbers.randint(0, 103) for _ in range(numbers.choice([0, 1, 4]))),
        )  # fmt: skip
        try:
            check_options(sampling, stopping, SpeculationParams(), numbers.choice([None, 0, 20, 21]), 0, "", VOCABULARY)
        except PacelineError as error:
            assert error.code is Code.INVALID_ARGUMENT
            assert error.field
            continue
        accepted += 1
        scale = 1.0 / sampling.temperature if sampling.temperature else 1.0
        biases = [bias for _, bias in sampling.logit_bias]
        assert all(math.isfinite(one) for one in (scale, sampling.top_p, sampling.min_p, *biases))
        assert scale <= 1.001e5
    assert 0.05 * cases < accepted < 0.95 * cases
    report_counts("validator_cases", cases)
