"""Per-slot state of sampling and commit, in static buffers indexed by slot; the last slot is the pad slot."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, get_type_hints

import torch
from torch import Tensor

from services.common.device.staging import upload, write
from services.common.request.sampling import RANGES, SamplingParams

_NO_LIMIT = 1 << 40
_INTEGERS = ("length_S", "anchor_S", "generated_S", "max_tokens_S", "min_tokens_S", "limit_S", "draft_limit_S")
_FLAGS = ("active_S", "penalised_S", "biased_S")
_PARAMETERS = {name: kind for name, kind in get_type_hints(SamplingParams).items() if name in RANGES}
_DTYPES = {int: torch.int64, float: torch.float32}


class End(IntEnum):
    """Why a row's request ended in this round."""

    NONE = 0
    STOP_TOKEN = 1
    LENGTH = 2
    CONTEXT = 3
    NON_FINITE = 4


@dataclass(frozen=True, kw_only=True)
class SlotParams(SamplingParams):
    """What a request asks of sampling and stopping. `context_limit` bounds prompt and output together, in tokens."""

    max_tokens: int
    context_limit: int
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    draft_limit: int | None = None


@dataclass(frozen=True)
class SlotState:
    """The state of every slot. `length` counts tokens in K/V; the anchor has that position and is not in K/V yet.

    Each sampling parameter that is a number has a column of its name.
    """

    length_S: Tensor
    anchor_S: Tensor
    active_S: Tensor
    generated_S: Tensor
    max_tokens_S: Tensor
    min_tokens_S: Tensor
    limit_S: Tensor
    draft_limit_S: Tensor
    temperature_S: Tensor
    top_k_S: Tensor
    top_p_S: Tensor
    min_p_S: Tensor
    seed_S: Tensor
    repetition_penalty_S: Tensor
    presence_penalty_S: Tensor
    frequency_penalty_S: Tensor
    penalised_S: Tensor
    biased_S: Tensor
    bias_SV: Tensor
    prompt_seen_SV: Tensor
    counts_SV: Tensor
    stop_ids_SM: Tensor
    history_SC: Tensor
    host: dict[int, SlotParams] = field(default_factory=dict)

    @classmethod
    def allocate(
        cls,
        slots: int,
        vocab: int,
        context: int,
        *,
        stop_ids: int = 32,
        device: torch.device | str = "cpu",
        history_SC: Tensor | None = None,
    ) -> "SlotState":
        """Return inactive slots plus the pad slot; `history_SC` may live in shared memory."""
        count = slots + 1

        def make(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((count, *shape), dtype=dtype, device=device)

        scalars: dict[str, Any] = {
            **{name: make(torch.int64) for name in _INTEGERS},
            **{f"{name}_S": make(_DTYPES[kind]) for name, kind in _PARAMETERS.items()},
            **{name: make(torch.bool) for name in _FLAGS},
        }
        return cls(
            **scalars,
            bias_SV=make(torch.float32, vocab),
            prompt_seen_SV=make(torch.bool, vocab),
            counts_SV=make(torch.int32, vocab),
            stop_ids_SM=make(torch.int64, stop_ids).fill_(-1),
            history_SC=make(torch.int32, context) if history_SC is None else history_SC,
        )

    def admit(self, slot: int, params: SlotParams, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
        """Fill a slot for prompt and output so far; length and anchor are set as before its first accepted token.

        The last known token becomes the anchor; `length` is its position, so a W = 1 accept over the logits of that
        token commits the next one.

        Raises:
            ValueError: more stop ids than the buffer holds.
        """
        if len(params.stop_ids) > self.stop_ids_SM.shape[1]:
            raise ValueError(f"{len(params.stop_ids)} stop ids, at most {self.stop_ids_SM.shape[1]} fit")
        known = [*prompt, *output]
        self._scalars(slot, params)
        self.length_S[slot].fill_(len(known) - 1)
        self.anchor_S[slot].fill_(known[-1])
        self.generated_S[slot].fill_(len(output))
        self.stop_ids_SM[slot].fill_(-1)
        if params.stop_ids:
            write(self.stop_ids_SM[slot, : len(params.stop_ids)], params.stop_ids)
        self._vocabulary(slot, params, prompt, output)
        write(self.history_SC[slot, : len(known)], known)
        self.active_S[slot].fill_(True)
        self.host[slot] = params

    def release(self, slot: int) -> None:
        """Make a slot inactive: its rows commit nothing from now on."""
        self.active_S[slot].fill_(False)
        self.host.pop(slot, None)

    def _scalars(self, slot: int, params: SlotParams) -> None:
        values = (
            (self.max_tokens_S, params.max_tokens),
            (self.min_tokens_S, params.min_tokens),
            (self.limit_S, params.context_limit),
            (self.draft_limit_S, _NO_LIMIT if params.draft_limit is None else params.draft_limit),
            (self.penalised_S, params.penalised),
            (self.biased_S, bool(params.logit_bias)),
            *((getattr(self, f"{name}_S"), getattr(params, name)) for name in _PARAMETERS),
        )
        for tensor_S, value in values:
            # A seed of 64 bits without sign fills the integer of the same bits.
            tensor_S[slot].fill_(value - (1 << 64) if value >= 1 << 63 else value)

    def columns(self, kernel: Any) -> dict[str, Tensor]:
        """The arguments of a Triton kernel that are columns of scalars: temperature_ptr is temperature_S."""
        pointers = {name: f"{name.removesuffix('_ptr')}_S" for name in kernel.arg_names if name.endswith("_ptr")}
        found = {name: getattr(self, column) for name, column in pointers.items() if hasattr(self, column)}
        return {name: one_S.view(torch.uint8) if one_S.dtype == torch.bool else one_S for name, one_S in found.items()}

    def _vocabulary(self, slot: int, params: SlotParams, prompt: Sequence[int], output: Sequence[int]) -> None:
        device = self.counts_SV.device
        before = self.host.get(slot)
        if before is None or before.logit_bias:
            self.bias_SV[slot].fill_(0.0)
        for token, bias in params.logit_bias:
            self.bias_SV[slot, token].fill_(bias)
        self.counts_SV[slot].fill_(0)
        self.prompt_seen_SV[slot].fill_(False)
        self.prompt_seen_SV[slot].index_fill_(0, upload(prompt, torch.int64, device), True)
        if output:
            ids = upload(output, torch.int64, device)
            self.counts_SV[slot].index_add_(0, ids, torch.ones_like(ids, dtype=torch.int32))


@dataclass(frozen=True)
class RoundResult:
    """What a round committed, by row: `count` of `tokens` (the rest -1), drafts accepted among them and offered.

    All are views of `packed_N`, so that one transfer reads them.
    """

    tokens_BW: Tensor
    count_B: Tensor
    accepted_B: Tensor
    drafted_B: Tensor
    end_B: Tensor
    packed_N: Tensor

    @classmethod
    def allocate(cls, bucket: int, width: int, device: torch.device | str = "cpu") -> "RoundResult":
        """Return static buffers for one shape of round."""
        packed_N = torch.zeros(bucket * (width + 4), dtype=torch.int64, device=device)
        tokens_BW = packed_N[: bucket * width].view(bucket, width).fill_(-1)
        count_B, accepted_B, drafted_B, end_B = packed_N[bucket * width :].view(4, bucket).unbind()
        return cls(tokens_BW, count_B, accepted_B, drafted_B, end_B, packed_N)

    def unpack(self, packed_N: Tensor) -> tuple[list[list[int]], list[int], list[int], list[int], list[int]]:
        """Tokens, counts, accepted, drafted and ends of a copy of `packed_N`."""
        bucket, width = self.tokens_BW.shape
        flat = packed_N.tolist()
        tokens = [flat[row * width : (row + 1) * width] for row in range(bucket)]
        counts, accepted, drafted, ends = (
            flat[first : first + bucket] for first in range(bucket * width, bucket * (width + 4), bucket)
        )
        return tokens, counts, accepted, drafted, ends
