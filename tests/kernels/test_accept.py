"""Sample, accept, commit: against plain decoding over many random rounds, and in the known hard cases."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from services.common.device.noise import gumbel_array
from services.common.kernels.accept import End, Entrant, RoundResult, SlotParams, SlotState, accept, logprobs
from services.common.request.sampling import RANGES, SamplingParams
from tests.kernels.plain_sampling import Plain

VOCAB, SLOTS, CONTEXT = 12, 5, 64
SEED = 20260717


def random_params(rng: random.Random) -> SlotParams:
    def maybe(value: float, neutral: float) -> float:
        return value if rng.random() < 0.4 else neutral

    stops = tuple(rng.sample(range(VOCAB), rng.choice((0, 0, 1, 3))))
    biased = tuple((token, rng.uniform(-2, 2)) for token in rng.sample(range(VOCAB), 3))
    return SlotParams(
        max_tokens=rng.randint(3, 12),
        context_limit=rng.randint(12, 24),
        min_tokens=rng.choice((0, 0, 2, 4)),
        stop_ids=stops,
        temperature=rng.choice((0.0, 0.0, 0.7, 1.3)),
        top_k=int(maybe(rng.randint(1, 14), 0)),
        top_p=maybe(rng.uniform(0.05, 0.95), 1.0),
        min_p=maybe(rng.uniform(0.01, 0.5), 0.0),
        seed=rng.getrandbits(64),
        repetition_penalty=maybe(rng.uniform(0.6, 1.8), 1.0),
        presence_penalty=maybe(rng.uniform(-1, 1), 0.0),
        frequency_penalty=maybe(rng.uniform(-1, 1), 0.0),
        logit_bias=biased if rng.random() < 0.3 else (),
        draft_limit=rng.choice((None, None, 0, 2)),
        masked=rng.random() < 0.4,
    )


def some_grammar(salt: int) -> Callable[[Sequence[int]], frozenset[int]]:
    """A rule that says what may follow an output, and leaves a choice wherever stop tokens are masked."""

    def allowed(output: Sequence[int]) -> frozenset[int]:
        return frozenset(random.Random(f"{salt} {list(output)}").sample(range(VOCAB), VOCAB // 2))

    return allowed


def write_masks(state: SlotState, slot: int, plain: Plain, drafts: Sequence[int]) -> None:
    """Walk the drafts as far as the rule allows them; what lies behind must not matter."""
    assert plain.allowed is not None
    state.walked_SK[slot], output = -1, list(plain.output)
    state.mask_SWN[slot] = random.Random(str(output)).getrandbits(31)
    for offset in range(len(drafts) + 1):
        bits = sum(1 << token for token in plain.allowed(output))
        state.mask_SWN[slot, offset, 0] = bits
        if offset == len(drafts) or drafts[offset] not in plain.allowed(output):
            return
        state.walked_SK[slot, offset] = drafts[offset]
        output.append(drafts[offset])


def random_logits(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    values = rng.normal(size=(rows, width, VOCAB)) * 1.5
    return np.round(values * 2) / 2 if rng.random() < 0.3 else values


def guided_drafts(rng: random.Random, plain: Plain, logits: np.ndarray, noise: np.ndarray) -> list[int]:
    """Return drafts that are right for a while: random ones are never accepted twice in a row."""
    twin, drafts = Plain(plain.params, plain.prompt, list(plain.output), plain.allowed), []
    for row, row_noise in zip(logits[:-1], noise[:-1], strict=True):
        token = twin.choose(row, row_noise)
        twin.output.append(token)
        drafts.append(token if rng.random() < 0.8 else rng.randrange(-1, VOCAB))
    return drafts


def noise_of(params: SlotParams, start: int, width: int) -> np.ndarray:
    seed = np.array([params.seed], dtype=np.uint64).astype(np.int64)
    noise: np.ndarray = gumbel_array(seed, np.arange(start, start + width)[None], VOCAB, np.float64)[0]
    return noise


def assert_state(state: SlotState, slot: int, plain: Plain) -> None:
    known = plain.prompt + plain.output
    assert int(state.length_S[slot]) == len(known) - 1
    assert int(state.anchor_S[slot]) == known[-1]
    assert int(state.generated_S[slot]) == len(plain.output)
    assert state.history_SC[slot, : len(known)].tolist() == known
    assert state.counts_SV[slot].tolist() == [plain.output.count(token) for token in range(VOCAB)]


def one_case(rng: random.Random, generator: np.random.Generator) -> int:
    state = SlotState.allocate(SLOTS, VOCAB, CONTEXT, width=8)
    requests: dict[int, Plain] = {}
    for slot in rng.sample(range(SLOTS), 4):
        plain = Plain(random_params(rng), [rng.randrange(VOCAB) for _ in range(rng.randint(1, 8))])
        if plain.params.masked:
            # Only a mask's owner knows the stop tokens that come too early: it leaves a choice.
            plain.params = dataclasses.replace(plain.params, min_tokens=0)
            plain.allowed = some_grammar(rng.getrandbits(32))
        state.admit(Entrant(slot, plain.params, plain.prompt))
        requests[slot] = plain
    rounds = 0
    while requests:
        width = rng.choice((1, 4, 8))
        rows = [*requests, *[SLOTS] * rng.randint(0, 2)]
        logits = random_logits(generator, len(rows), width)
        drafts = np.full((len(rows), width - 1), -1)
        expected = []
        for index, slot in enumerate(requests):
            plain = requests[slot]
            noise = noise_of(plain.params, len(plain.prompt) + len(plain.output), width)
            drafts[index] = guided_drafts(rng, plain, logits[index], noise)
            if plain.allowed is not None:
                write_masks(state, slot, plain, drafts[index].tolist())
            start, limit = len(plain.prompt) + len(plain.output), plain.params.draft_limit
            expected.append(plain.round(logits[index], noise, start, drafts[index][:limit]))
        result = RoundResult.allocate(len(rows), width)
        rows_B = torch.tensor(rows, dtype=torch.int32)
        accept(torch.from_numpy(logits), torch.from_numpy(drafts), rows_B, state, result)
        for index, (slot, (made, end)) in enumerate(zip(list(requests), expected, strict=True)):
            assert result.tokens_BW[index].tolist() == made + [-1] * (width - len(made))
            assert int(result.count_B[index]) == len(made)
            assert int(result.end_B[index]) == end
            assert_state(state, slot, requests[slot])
            assert bool(state.active_S[slot]) == (end == End.NONE)
            if end:
                del requests[slot]
        assert not result.count_B[len(expected) :].any()
        rounds += len(expected)
    return rounds


def test_random_rows_equal_plain_decoding(full: bool) -> None:
    rng, generator = random.Random(SEED), np.random.default_rng(SEED)
    rows = 0
    while rows < (10_000 if full else 2_000):
        rows += one_case(rng, generator)


def greedy_state(slot: int = 0, vocab: int = VOCAB, **params: object) -> SlotState:
    state = SlotState.allocate(2, vocab, CONTEXT)
    state.admit(Entrant(slot, SlotParams(**{"max_tokens": 50, "context_limit": CONTEXT, **params}), [1, 2, 3]))  # type: ignore[arg-type]
    return state


@pytest.mark.parametrize("mode", ["greedy", "full"])
def test_ties_go_to_the_lowest_id(mode: str) -> None:
    state, result = greedy_state(), RoundResult.allocate(1, 1)
    logits = torch.zeros(1, 1, VOCAB)
    logits[..., [4, 7, 9]] = 2.0
    accept(logits, torch.empty(1, 0, dtype=torch.int64), torch.tensor([0]), state, result, mode=mode)  # type: ignore[arg-type]
    assert result.tokens_BW.tolist() == [[4]]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 3, "min_p": 0.1}])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_logits_end_their_own_request_only(params: dict[str, float], bad: float) -> None:
    state = greedy_state(**params)  # type: ignore[arg-type]
    state.admit(Entrant(1, SlotParams(max_tokens=50, context_limit=CONTEXT), [1, 2]))
    logits = torch.zeros(2, 3, VOCAB)
    logits[:, :, 5] = 3.0
    logits[0, 1, 2] = bad
    result = RoundResult.allocate(2, 3)
    accept(logits, torch.full((2, 2), 5), torch.tensor([0, 1]), state, result)
    assert result.end_B[1] == End.NONE
    assert result.tokens_BW[1].tolist() == [5, 5, 5]
    if params.get("temperature", 0) == 0:
        assert result.end_B[0] == End.NON_FINITE
        assert result.tokens_BW[0].tolist() == [5, -1, -1]
        assert state.active_S.tolist() == [False, True, False]


def test_poison_in_pad_rows_and_in_the_pad_slot_reaches_nothing() -> None:
    state, result = greedy_state(slot=1, temperature=0.9, top_p=0.9, presence_penalty=0.5), RoundResult.allocate(3, 2)
    clean, clean_result = (
        greedy_state(slot=1, temperature=0.9, top_p=0.9, presence_penalty=0.5),
        RoundResult.allocate(1, 2),
    )
    logits = torch.randn(3, 2, VOCAB, generator=torch.Generator().manual_seed(SEED))
    logits[1:] = float("nan")
    for poisoned in (state.temperature_S, state.bias_SV, state.repetition_penalty_S, state.top_p_S):
        poisoned[2] = float("nan")
    before = [tensor[2].clone() for tensor in (state.length_S, state.anchor_S, state.counts_SV, state.history_SC)]
    accept(logits, torch.full((3, 1), 4), torch.tensor([1, 2, 2]), state, result)
    accept(logits[:1], torch.full((1, 1), 4), torch.tensor([1]), clean, clean_result)
    assert result.tokens_BW[0].tolist() == clean_result.tokens_BW[0].tolist()
    assert result.count_B[1:].tolist() == [0, 0]
    after = [tensor[2] for tensor in (state.length_S, state.anchor_S, state.counts_SV, state.history_SC)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_unsigned_seed_above_the_signed_range_is_held() -> None:
    state = greedy_state(seed=2**64 - 5)
    assert int(state.seed_S[0]) == -5


def test_every_sampling_parameter_that_is_a_number_has_a_column_and_kernels_get_it_by_name() -> None:
    values = {name: min(allowed.high, 0.25 + place) for place, (name, allowed) in enumerate(RANGES.items())}
    kinds = {name: type(getattr(SamplingParams(), name)) for name in RANGES}
    state = greedy_state(**{name: kinds[name](value) for name, value in values.items()})
    kernel = SimpleNamespace(arg_names=["logits_ptr", *(f"{name}_ptr" for name in RANGES), "active_ptr", "length"])
    columns = state.columns(kernel)
    assert list(columns) == [*(f"{name}_ptr" for name in RANGES), "active_ptr"]
    for name, value in values.items():
        column_S = columns[f"{name}_ptr"]
        assert column_S.dtype == (torch.int64 if kinds[name] is int else torch.float32)
        assert column_S[0].item() == kinds[name](value), name
    assert columns["active_ptr"].tolist() == [1, 0, 0]


def test_admitting_a_slot_again_forgets_the_last_request() -> None:
    state = greedy_state(logit_bias=((3, 5.0),), stop_ids=(1, 2), presence_penalty=1.0, draft_limit=2)
    state.release(0)
    state.admit(Entrant(0, SlotParams(max_tokens=5, context_limit=CONTEXT), [7], [8]))
    fresh = SlotState.allocate(2, VOCAB, CONTEXT)
    fresh.admit(Entrant(0, SlotParams(max_tokens=5, context_limit=CONTEXT), [7], [8]))
    for name in ("bias_SV", "stop_ids_SM", "counts_SV", "prompt_seen_SV", "draft_limit_S", "penalised_S", "biased_S"):
        assert torch.equal(getattr(state, name)[0], getattr(fresh, name)[0]), name


def test_a_draft_that_the_masks_were_not_made_for_is_not_accepted() -> None:
    """A drafter may write its mailbox between the walk and the verify: the text must not follow it."""
    state = SlotState.allocate(2, VOCAB, CONTEXT, width=3)
    state.admit(Entrant(0, SlotParams(max_tokens=50, context_limit=CONTEXT, masked=True), [1, 2, 3]))
    state.mask_SWN[0] = 0b110000
    state.walked_SK[0] = torch.tensor([4, 5])
    logits = torch.zeros(1, 3, VOCAB)
    logits[0, 0, 5], logits[0, 0, 7], logits[0, 1:, 4] = 1.0, 9.0, 1.0
    result = RoundResult.allocate(1, 3)
    accept(logits, torch.tensor([[5, 4]]), torch.zeros(1, dtype=torch.int32), state, result)
    assert result.tokens_BW.tolist() == [[5, -1, -1]]
    assert result.drafted_B.tolist() == [2]


def test_too_many_stop_ids_are_refused() -> None:
    state = SlotState.allocate(1, 100, CONTEXT, stop_ids=2)
    with pytest.raises(ValueError, match="stop ids"):
        state.admit(Entrant(0, SlotParams(max_tokens=5, context_limit=CONTEXT, stop_ids=(1, 2, 3)), [7]))


def test_logprobs_are_those_of_the_raw_logits() -> None:
    logits = torch.randn(2, 3, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    tokens = torch.tensor([[0, 3, -1], [11, 2, 5]])
    chosen, ids, values = logprobs(logits, tokens, 4)
    law = logits.softmax(-1)
    assert float(chosen[1, 0].exp()) == pytest.approx(float(law[1, 0, 11]))
    assert torch.equal(ids[0, 1], law[0, 1].argsort(descending=True)[:4])
    assert bool((values.diff(dim=-1) <= 0).all())
