"""Sampling parameters of the OpenAI endpoints: their names are ours, their defaults OpenAI's."""

from services.common.request.sampling import SamplingParams
from services.gateway.http.reading.convert import _sampling
from services.gateway.http.schema.bodies import Common


def test_what_is_absent_takes_its_default_and_the_temperature_is_one() -> None:
    assert _sampling(Common(model="m")) == SamplingParams(temperature=1.0)


def test_what_is_given_is_taken() -> None:
    body = Common(
        model="m", temperature=0.0, top_p=0.5, top_k=3, min_p=0.25, seed=-1, repetition_penalty=1.5,
        presence_penalty=0.5, frequency_penalty=-0.5, logit_bias={"7": 1.0, "2": -1.0},
    )  # fmt: skip
    assert _sampling(body) == SamplingParams(0.0, 0.5, 3, 0.25, 2**64 - 1, 1.5, 0.5, -0.5, ((2, -1.0), (7, 1.0)))
