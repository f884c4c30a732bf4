"""The accept kernels against the reference, and the drafts' copy: every buffer of every slot must come out equal."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch

from services.common.device.noise import gumbel
from services.common.kernels.accept import End, Entrant, RoundResult, SlotParams, SlotState, accept, kernel
from services.common.kernels.force_acceptance import force_acceptance, force_nodes
from services.common.kernels.force_acceptance import kernel as lift_kernel
from services.common.kernels.mailbox import kernel as take_kernel
from services.common.kernels.mailbox import read_mailbox
from services.common.kernels.nodes import Nodes
from tests.kernels.gpu.devices import DEVICE

VOCAB, SLOTS, CONTEXT, SEED = 40, 4, 64, 5


def params_of(rng: random.Random, greedy: bool) -> SlotParams:
    stops = tuple(rng.sample(range(VOCAB), rng.choice((0, 2))))
    limits: dict[str, Any] = {"max_tokens": rng.randint(2, 9), "context_limit": rng.randint(10, 16), "stop_ids": stops}
    limits["draft_limit"] = rng.choice((None, 2))
    if greedy:
        return SlotParams(**limits)
    return SlotParams(
        **limits, min_tokens=rng.choice((0, 3)), temperature=rng.choice((0.0, 0.8, 1.2)), top_k=rng.choice((0, 5)),
        top_p=rng.choice((1.0, 0.7)), min_p=rng.choice((0.0, 0.05)), seed=rng.getrandbits(64),
        repetition_penalty=rng.choice((1.0, 1.3)), presence_penalty=rng.choice((0.0, 0.4)),
        frequency_penalty=rng.choice((0.0, -0.3)), logit_bias=rng.choice(((), ((3, 2.0), (7, -5.0)))),
        masked=rng.random() < 0.5,
    )  # fmt: skip


def on_device(state: SlotState) -> SlotState:
    moved: dict[str, Any] = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    copies: dict[str, Any] = {n: v.clone().to(DEVICE) for n, v in moved.items() if n != "host"}
    return SlotState(host=dict(state.host), **copies)


def assert_same(got: object, expected: object) -> None:
    for field in dataclasses.fields(expected):  # type: ignore[arg-type]
        value = getattr(expected, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(got, field.name).cpu(), value), field.name


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(("mode", "together"), [("greedy", 512), ("full", 512), ("full", 7), ("full", 1)])
def test_rounds_equal_the_reference(mode: str, together: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all rows are scored together or some at a time."""
    monkeypatch.setattr(kernel, "SCORED_ROWS", together)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    for _ in range(1 if DEVICE == "cpu" else 100):
        state = SlotState.allocate(SLOTS, VOCAB, CONTEXT, stop_ids=4, width=4)
        for slot in (0, 1, 3):
            state.admit(
                Entrant(slot, params_of(rng, mode == "greedy"), [rng.randrange(VOCAB) for _ in range(5)], [9, 9])
            )
        rows = torch.tensor([3, 0, 1, SLOTS], dtype=torch.int32)
        logits = torch.randn((len(rows), width, VOCAB), generator=generator) * 2
        logits[3] = float("nan")
        drafts = logits.argmax(-1)[:, : width - 1].clone()
        drafts[1, 1:] = -1
        state.mask_SWN.random_(-(1 << 31), 1 << 31, generator=generator)
        state.walked_SK[rows[:3].long(), : width - 1] = drafts[:3]
        state.walked_SK[1, 1:] = 7
        twin, result = on_device(state), RoundResult.allocate(len(rows), width)
        got = RoundResult.allocate(len(rows), width, DEVICE)
        accept.reference(logits, drafts, rows, state, result, None, mode)  # type: ignore[arg-type]
        kernel.accept(logits.to(DEVICE), drafts.to(DEVICE), rows.to(DEVICE), twin, got, None, mode)  # type: ignore[arg-type]
        assert_same(got, result)
        assert_same(twin, state)


@pytest.mark.parametrize("mode", ["greedy", "full"])
def test_logits_that_are_not_finite_end_the_request(mode: str) -> None:
    state = SlotState.allocate(SLOTS, VOCAB, CONTEXT)
    for slot in range(3):
        state.admit(Entrant(slot, SlotParams(max_tokens=9, context_limit=50), [1, 2]))
    logits = torch.zeros(3, 2, VOCAB)
    logits[0, 1, 7], logits[1, 0, 9] = float("nan"), float("inf")
    twin, got = on_device(state), RoundResult.allocate(3, 2, DEVICE)
    drafts, rows = torch.zeros(3, 1, dtype=torch.int64, device=DEVICE), torch.arange(3, device=DEVICE)
    kernel.accept(logits.to(DEVICE), drafts, rows, twin, got, None, mode)  # type: ignore[arg-type]
    assert got.end_B.tolist() == [End.NON_FINITE, End.NON_FINITE, End.NONE]
    assert got.count_B.tolist() == [1, 0, 2]


@pytest.mark.parametrize("cut", [{}, {"top_k": 3}, {"top_p": 0.9}, {"top_k": 5, "top_p": 0.5}, {"min_p": 0.1}])
def test_sampling_from_rows_that_leave_no_choice(cut: dict[str, Any]) -> None:
    """NaN, +inf, all masked, a single token, all equal: as the reference ends or goes on."""
    params = SlotParams(max_tokens=9, context_limit=50, temperature=0.8, presence_penalty=0.5, seed=SEED, **cut)
    state = SlotState.allocate(5, VOCAB, CONTEXT)
    for slot in range(5):
        state.admit(Entrant(slot, params, [1, 2], [3]))
    logits = torch.randn((5, 2, VOCAB), generator=torch.Generator().manual_seed(SEED))
    logits[0, 1, 7], logits[1, 0, 9] = float("nan"), float("inf")
    logits[2, 0], logits[3], logits[4] = -float("inf"), -float("inf"), 1.0
    logits[3, :, 11] = -2.0
    drafts, rows = torch.full((5, 1), 11), torch.arange(5, dtype=torch.int32)
    twin, result, got = on_device(state), RoundResult.allocate(5, 2), RoundResult.allocate(5, 2, DEVICE)
    accept.reference(logits, drafts, rows, state, result, None, "full")
    kernel.accept(logits.to(DEVICE), drafts.to(DEVICE), rows.to(DEVICE), twin, got, None, "full")
    assert result.end_B[1:4].tolist() == [End.NON_FINITE, End.NON_FINITE, End.NONE]
    assert_same(got, result)
    assert_same(twin, state)


def test_the_noise_is_that_of_the_reference() -> None:
    """With level logits the choice is the noise's own argmax, over several tiles."""
    vocab = 2500
    state = SlotState.allocate(2, vocab, CONTEXT)
    state.admit(Entrant(0, SlotParams(max_tokens=9, context_limit=50, temperature=1.0, seed=2**63 + 11), [1, 2, 3]))
    twin, got = on_device(state), RoundResult.allocate(1, 3, DEVICE)
    noise = gumbel(state.seed_S[:1], torch.arange(3, 6)[None], vocab)
    drafts = noise.argmax(-1)[:, :2]
    kernel.accept(
        torch.zeros(1, 3, vocab, device=DEVICE), drafts.to(DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE),
        twin, got, None, "full",
    )  # fmt: skip
    assert got.tokens_BW.tolist() == noise.argmax(-1).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lift_drafts(dtype: torch.dtype) -> None:
    """The same draws by seed and position; drafts that are none are taken for token 0."""
    generator = torch.Generator().manual_seed(SEED)
    rates, rows = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([3, 0, 4, 1, 2], dtype=torch.int32)
    state = SlotState.allocate(5, VOCAB, 64)
    state.seed_S.copy_(torch.tensor([0, 7, -(1 << 62), 1 << 33, -1, 0]))
    for position in range(20):
        state.length_S.copy_(torch.arange(6) * (1 << 31) + position)
        logits = torch.randn((5, 4, VOCAB), generator=generator).to(dtype)
        drafts = torch.randint(-1, VOCAB, (5, 3), generator=generator)
        got = logits.clone().to(DEVICE)
        force_acceptance.reference(logits, drafts, rates, rows, state)
        lift_kernel.force_acceptance(got, drafts.to(DEVICE), rates.to(DEVICE), rows.to(DEVICE), on_device(state))
        assert torch.equal(got.cpu(), logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lift_nodes(dtype: torch.dtype) -> None:
    """The same draws by seed and position, in the rows of parents; absent nodes move nothing."""
    generator = torch.Generator().manual_seed(SEED)
    rows, parents = torch.tensor([3, 0, 4, 1, 2], dtype=torch.int32), torch.tensor([0, 0, 1, 1, 3, 0])
    depths, state = torch.tensor([0, 1, 1, 2, 2, 3, 1]), SlotState.allocate(5, VOCAB, 64)
    state.seed_S.copy_(torch.tensor([0, 7, -(1 << 62), 1 << 33, -1, 0]))
    nodes, twins = (Nodes.allocate(5, 7, device) for device in ("cpu", DEVICE))
    for one in (nodes, twins):
        one.parents_BK.copy_(parents.expand(5, -1))
        one.depths_BW.copy_(depths.expand(5, -1))
    edges = torch.tensor([[[0.5, 0.8], [0.3, 0.6]], [[0.9, 1.0], [0.0, 0.5]]])
    for position in range(20):
        state.length_S.copy_(torch.arange(6) * (1 << 31) + position)
        logits = torch.randn((5, 7, VOCAB), generator=generator).to(dtype)
        drafts = torch.stack([torch.randperm(VOCAB, generator=generator)[:6] for _ in range(5)])
        drafts[0, 2] = -1
        got = logits.clone().to(DEVICE)
        force_nodes.reference(logits, drafts, edges, rows, state, nodes)
        there = drafts.to(DEVICE), edges.to(DEVICE), rows.to(DEVICE), on_device(state)
        lift_kernel.force_nodes(got, *there, twins)
        assert torch.equal(got.cpu(), logits)


def test_take_drafts() -> None:
    rng = np.random.default_rng(SEED)
    tokens = torch.from_numpy(rng.integers(-1, 12, (6, 5))).int()
    tags, epochs = torch.from_numpy(rng.integers(3, 5, (6, 3))), torch.full((6,), 4)
    tags[:4] = 4
    rows, expected = torch.arange(6, dtype=torch.int32), torch.tensor([4, 4])
    out, twin = torch.empty(6, 3, dtype=torch.int64), torch.empty(6, 3, dtype=torch.int64, device=DEVICE)
    read_mailbox.reference(tokens, tags, rows, epochs, expected, 10, out)
    on_gpu = [tensor.to(DEVICE) for tensor in (tokens, tags, rows, epochs, expected)]
    take_kernel.read_mailbox(on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3], on_gpu[4], 10, twin)
    assert torch.equal(twin.cpu(), out)
    assert bool((out >= 0).any())
    assert bool((out < 0).any())
