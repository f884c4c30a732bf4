"""Ends, resumes and log-probabilities of the runner: the same at any width as one token at a time."""

from dataclasses import replace

import pytest
import torch

from services.common.sampling import FinishReason, SamplingParams, StopParams
from services.target.request import RequestSpec
from tests.lossless.oracle import Oracle
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import perfect
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.unit.target.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

FLOAT64 = RigSettings(dtype=torch.float64, slots=2, buckets=(1, 2))
IDS = prompt(11, 14)


def run(settings: RigSettings, specs: list[RequestSpec], propose: ProposerFactory | None = None) -> list[Done]:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        return rig.run(specs)


def free_run(tokens: int = 24) -> list[int]:
    """What the model says greedily when nothing stops it."""
    return run(FLOAT64, [request("free", IDS, tokens)])[0].tokens


def speculative(specs: list[RequestSpec], said: list[int], settings: RigSettings = FLOAT64) -> list[Done]:
    """The same requests at W = 8 with a drafter that is always right."""
    truth = {spec.request_id: [*IDS, *said] for spec in specs}
    return run(replace(settings, width=8), specs, perfect(truth))


def first_place(said: list[int], token: int) -> int:
    return said.index(token)


@pytest.mark.parametrize("place", range(1, 12))
def test_a_stop_token_ends_at_every_offset_of_a_span(place: int) -> None:
    said = free_run()
    token = said[place]
    place = first_place(said, token)
    spec = request("s", IDS, stopping=StopParams(max_tokens=24, stop_token_ids=(token,), ignore_eos=True))
    for done in (run(FLOAT64, [spec])[0], speculative([spec], said)[0]):
        assert done.tokens == said[: place + 1]
        assert done.end is FinishReason.STOP_TOKEN


def test_end_of_sequence_ends_unless_ignored() -> None:
    said = free_run()
    eos = said[7]
    settings = replace(FLOAT64, eos_ids=(eos,))
    ends = request("ends", IDS, stopping=StopParams(max_tokens=24))
    ignores = request("ignores", IDS, 24)
    for done in (run(settings, [ends, ignores]), speculative([ends, ignores], said, settings)):
        assert done[0].tokens == said[: first_place(said, eos) + 1]
        assert done[0].end is FinishReason.STOP_TOKEN
        assert done[1].tokens == said and done[1].end is FinishReason.LENGTH


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 16, 17])
def test_max_tokens_cut_a_span(tokens: int) -> None:
    said = free_run()
    for done in (run(FLOAT64, [request("m", IDS, tokens)]), speculative([request("m", IDS, tokens)], said)):
        assert done[0].tokens == said[:tokens]
        assert done[0].end is FinishReason.LENGTH


@pytest.mark.parametrize("limit", [15, 16, 17, 20, 30])
def test_the_context_limit_is_reached_and_never_passed(limit: int) -> None:
    said = free_run()
    settings = replace(FLOAT64, context_limit=limit)
    spec = request("c", IDS, 500)
    for done in (run(settings, [spec])[0], speculative([spec], said, settings)[0]):
        assert done.tokens == said[: limit - len(IDS)]
        assert done.end is FinishReason.CONTEXT


def test_min_tokens_masks_stops_until_reached() -> None:
    said = free_run()
    stops = StopParams(max_tokens=24, min_tokens=10, stop_token_ids=(said[0], said[3], said[5]), ignore_eos=True)
    plain = run(FLOAT64, [request("m", IDS, stopping=stops)])[0]
    assert len(plain.tokens) >= 10
    assert not set(plain.tokens[:10]) & set(stops.stop_token_ids)
    wide = speculative([request("m", IDS, stopping=stops)], plain.tokens)[0]
    assert (wide.tokens, wide.end) == (plain.tokens, plain.end)


def test_a_stop_counts_in_the_span_that_reaches_min_tokens() -> None:
    said = free_run()
    place = next(place for place in range(10, 16) if said[place] not in said[:place])
    stops = StopParams(max_tokens=24, min_tokens=10, stop_token_ids=(said[place],), ignore_eos=True)
    for done in (
        run(FLOAT64, [request("m", IDS, stopping=stops)]),
        speculative([request("m", IDS, stopping=stops)], said),
    ):
        assert done[0].tokens == said[: place + 1]
        assert done[0].end is FinishReason.STOP_TOKEN


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PROCESSED], ids=["greedy", "sampled", "processed"])
@pytest.mark.parametrize("cut", [1, 5, 16, 23])
def test_a_resumed_request_says_the_rest(sampling: SamplingParams, cut: int) -> None:
    stops = StopParams(max_tokens=24, min_tokens=20, ignore_eos=True)
    whole_spec = replace(request("w", IDS, stopping=stops, logprobs=2), sampling=sampling)
    whole = run(FLOAT64, [whole_spec])[0]
    resumed_ids = (*IDS, *whole.tokens[:cut])
    resumed = replace(whole_spec, request_id="r", token_ids=resumed_ids)
    rest = run(replace(FLOAT64, width=4), [resumed], perfect({"r": [*IDS, *whole.tokens]}))[0]
    assert rest.tokens == whole.tokens[cut:]
    assert rest.end is FinishReason.LENGTH
    chosen = torch.tensor([entry.chosen for entry in rest.logprobs])
    assert torch.allclose(chosen, torch.tensor([entry.chosen for entry in whole.logprobs[cut:]]), atol=1e-6)


@pytest.mark.parametrize("width", [1, 8])
def test_logprobs_are_the_models_own(width: int) -> None:
    spec = request("l", IDS, 20, PROCESSED, logprobs=5)
    plain = run(FLOAT64, [spec])[0]
    done = plain if width == 1 else speculative([spec], plain.tokens)[0]
    logits_TV = Oracle(made_up_pair().target).logits([*IDS, *done.tokens])
    expected_TV = logits_TV[len(IDS) - 1 : -1].log_softmax(-1)
    assert len(done.logprobs) == len(done.tokens) == 20
    for token, entry, row_V in zip(done.tokens, done.logprobs, expected_TV, strict=True):
        best = row_V.topk(5)
        assert entry.chosen == pytest.approx(float(row_V[token]), abs=1e-4)
        assert [token_id for token_id, _ in entry.top] == best.indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_a_prefix_hit_says_the_same() -> None:
    shared = prompt(21, 40)
    specs = [request("first", (*shared, 7, 9), 16), request("second", (*shared, 7, 9), 16)]
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        cold = rig.run(specs[:1])[0]
        warm = rig.run(specs[1:])[0]
    assert warm.tokens == cold.tokens


def test_preempted_requests_wait_and_say_the_same() -> None:
    specs = [request(f"p{i}", prompt(30 + i, 20), 40, SAMPLED) for i in range(3)]
    alone = [run(FLOAT64, [spec])[0].tokens for spec in specs]
    tight = replace(FLOAT64, slots=3, buckets=(1, 2, 3), blocks=9, preemption=True, width=4)
    truth = {spec.request_id: [*spec.token_ids, *said] for spec, said in zip(specs, alone, strict=True)}
    assert [done.tokens for done in run(tight, specs, perfect(truth))] == alone
