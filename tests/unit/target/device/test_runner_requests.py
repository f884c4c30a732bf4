"""Ends, resumes and log-probabilities of the runner: the same at any width as one token at a time."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from services.common.request.sampling import FinishReason, SamplingParams, StopParams
from services.target.core.request import RequestSpec
from tests.lossless.oracle import Oracle
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import perfect
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

FLOAT64 = RigSettings(dtype=torch.float64, slots=2, buckets=(1, 2))
IDS = prompt(11, 14)


def run(settings: RigSettings, specs: list[RequestSpec], propose: ProposerFactory | None = None) -> list[Done]:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        return rig.run(specs)


@cache
def free_run() -> list[int]:
    """What the model says greedily when nothing stops it."""
    return run(FLOAT64, [request("free", IDS, 24)])[0].tokens


def at_both_widths(
    specs: list[RequestSpec], said: list[int], settings: RigSettings = FLOAT64
) -> tuple[list[Done], list[Done]]:
    """The requests one token at a time, and at W = 8 with a drafter that is always right."""
    truth = {spec.request_id: [*IDS, *said] for spec in specs}
    return run(settings, specs), run(replace(settings, width=8), specs, perfect(truth))


def test_a_stop_token_ends_at_every_offset_of_a_span() -> None:
    said = free_run()
    specs = [
        request(f"s{token}", IDS, stopping=StopParams(max_tokens=24, stop_token_ids=(token,), ignore_eos=True))
        for token in dict.fromkeys(said[1:18])
    ]
    for results in at_both_widths(specs, said):
        for spec, done in zip(specs, results, strict=True):
            assert done.tokens == said[: said.index(spec.stopping.stop_token_ids[0]) + 1]
            assert done.end is FinishReason.STOP_TOKEN


def test_end_of_sequence_ends_unless_ignored() -> None:
    said = free_run()
    eos = said[7]
    settings = replace(FLOAT64, eos_ids=(eos,))
    specs = [request("ends", IDS, stopping=StopParams(max_tokens=24)), request("ignores", IDS, 24)]
    for ends, ignores in at_both_widths(specs, said, settings):
        assert ends.tokens == said[: said.index(eos) + 1]
        assert ends.end is FinishReason.STOP_TOKEN
        assert ignores.tokens == said and ignores.end is FinishReason.LENGTH


def test_max_tokens_cut_a_span() -> None:
    said = free_run()
    specs = [request(f"m{tokens}", IDS, tokens) for tokens in (1, 2, 7, 8, 9, 10, 16, 17, 18)]
    for results in at_both_widths(specs, said):
        for spec, done in zip(specs, results, strict=True):
            assert done.tokens == said[: spec.stopping.max_tokens]
            assert done.end is FinishReason.LENGTH


@pytest.mark.parametrize("limit", [15, 16, 17, 20, 30])
def test_the_context_limit_is_reached_and_never_passed(limit: int) -> None:
    said = free_run()
    for (done,) in at_both_widths([request("c", IDS, 500)], said, replace(FLOAT64, context_limit=limit)):
        assert done.tokens == said[: limit - len(IDS)]
        assert done.end is FinishReason.CONTEXT


def test_min_tokens_masks_stops_until_reached() -> None:
    said = free_run()
    stops = StopParams(max_tokens=24, min_tokens=10, stop_token_ids=(said[0], said[3], said[5]), ignore_eos=True)
    spec = request("m", IDS, stopping=stops)
    plain = run(FLOAT64, [spec])[0]
    assert len(plain.tokens) >= 10
    assert not set(plain.tokens[:10]) & set(stops.stop_token_ids)
    _, (wide,) = at_both_widths([spec], plain.tokens)
    assert (wide.tokens, wide.end) == (plain.tokens, plain.end)


def test_a_stop_counts_in_the_span_that_reaches_min_tokens() -> None:
    said = free_run()
    place = next(place for place in range(10, 16) if said[place] not in said[:place])
    stops = StopParams(max_tokens=24, min_tokens=10, stop_token_ids=(said[place],), ignore_eos=True)
    for (done,) in at_both_widths([request("m", IDS, stopping=stops)], said):
        assert done.tokens == said[: place + 1]
        assert done.end is FinishReason.STOP_TOKEN


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PROCESSED], ids=["greedy", "sampled", "processed"])
def test_a_resumed_request_says_the_rest(sampling: SamplingParams) -> None:
    stops = StopParams(max_tokens=24, min_tokens=20, ignore_eos=True)
    spec = replace(request("whole", IDS, stopping=stops, logprobs=2), sampling=sampling)
    whole = run(FLOAT64, [spec])[0]
    cuts = (1, 5, 16, 23)
    resumed = [replace(spec, request_id=f"r{cut}", token_ids=(*IDS, *whole.tokens[:cut])) for cut in cuts]
    truth = {rest.request_id: [*IDS, *whole.tokens] for rest in resumed}
    for cut, rest in zip(cuts, run(replace(FLOAT64, width=4), resumed, perfect(truth)), strict=True):
        assert rest.tokens == whole.tokens[cut:]
        assert rest.end is FinishReason.LENGTH
        expected = [entry.chosen for entry in whole.logprobs[cut:]]
        assert [entry.chosen for entry in rest.logprobs] == pytest.approx(expected, abs=1e-6)


def test_logprobs_are_the_models_own() -> None:
    spec = request("l", IDS, 20, PROCESSED, logprobs=5)
    said = run(FLOAT64, [spec])[0].tokens
    logits_TV = Oracle(made_up_pair().target).logits([*IDS, *said])
    expected_TV = logits_TV[len(IDS) - 1 : -1].log_softmax(-1)
    for (done,) in at_both_widths([spec], said):
        assert done.tokens == said
        assert len(done.logprobs) == 20
        for token, entry, row_V in zip(said, done.logprobs, expected_TV, strict=True):
            best = row_V.topk(5)
            assert entry.chosen == pytest.approx(float(row_V[token]), abs=1e-4)
            assert [token_id for token_id, _ in entry.top] == best.indices.tolist()
            assert [value for _, value in entry.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_a_prefix_hit_says_the_same() -> None:
    ids = prompt(21, 42)
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        cold = rig.run([request("first", ids, 16)])[0]
        warm = rig.run([request("second", ids, 16)])[0]
        assert rig.cache is not None and rig.cache.hit_tokens == 32
    assert warm.tokens == cold.tokens


def test_preempted_requests_wait_and_say_the_same() -> None:
    specs = [request(f"p{i}", prompt(30 + i, 20), 40, SAMPLED) for i in range(3)]
    roomy = replace(FLOAT64, slots=3, buckets=(1, 2, 3))
    alone = [done.tokens for done in run(roomy, specs)]
    tight = replace(roomy, blocks=9, preemption=True, width=4)
    truth = {spec.request_id: [*spec.token_ids, *said] for spec, said in zip(specs, alone, strict=True)}
    assert [done.tokens for done in run(tight, specs, perfect(truth))] == alone
