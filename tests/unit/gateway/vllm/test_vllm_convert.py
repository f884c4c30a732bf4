"""The sampling parameters of vllm.grpc.engine, whose message has the names of ours."""

from services.common.pb.paceline.v1 import types_pb2
from services.common.request.sampling import SamplingParams
from services.gateway.vllm.convert import _sampling


def test_zero_is_the_default_and_an_absent_temperature_is_one() -> None:
    assert _sampling(types_pb2.Sampling()) == SamplingParams(temperature=1.0)
    zeros = types_pb2.Sampling(temperature=0.0, top_p=0.0, repetition_penalty=0.0)
    assert _sampling(zeros) == SamplingParams()


def test_what_is_given_is_taken() -> None:
    given = types_pb2.Sampling(temperature=0.5, top_p=0.25, top_k=3, seed=2**64 - 1, logit_bias={7: 1.0, 2: -1.0})
    assert _sampling(given) == SamplingParams(0.5, 0.25, 3, seed=2**64 - 1, logit_bias=((2, -1.0), (7, 1.0)))
