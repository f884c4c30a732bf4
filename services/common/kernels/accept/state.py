"""Per-slot state of sampling and commit, in static buffers indexed by slot; the last slot is the pad slot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.common.device.staging import upload
from services.common.kernels.row_table import RowTable
from services.common.request.sampling import RANGES, SamplingParams

_PARAMETERS = {name: kind for name, kind in get_type_hints(SamplingParams).items() if name in RANGES}
_KINDS: dict[torch.dtype, tuple[str, ...]] = {
    torch.int64: (
        *("length", "anchor", "generated", "max_tokens", "min_tokens", "limit", "draft_limit"),
        *(name for name, kind in _PARAMETERS.items() if kind is int),
    ),
    torch.float32: tuple(name for name, kind in _PARAMETERS.items() if kind is float),
    torch.bool: ("active", "penalised", "biased", "unfiltered", "masked"),
}
"""The columns of each type."""
_NO_LIMIT = 1 << 40


class End(IntEnum):
    """Why a row's request ended in this round."""

    NONE = 0
    STOP_TOKEN = 1
    LENGTH = 2
    CONTEXT = 3
    NON_FINITE = 4


@dataclass(frozen=True, kw_only=True)
class SlotParams(SamplingParams):
    """What a request asks of sampling and stopping. `context_limit` bounds prompt and output together, in tokens.

    A `masked` request chooses among the tokens that its masks allow.
    """

    max_tokens: int
    context_limit: int
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    draft_limit: int | None = None
    masked: bool = False


class Entrant(NamedTuple):
    """A request that gets a slot, with its prompt and its output so far."""

    slot: int
    params: SlotParams
    prompt: Sequence[int]
    output: Sequence[int] = ()

    def scalars(self) -> dict[str, float]:
        """The values of the slot's columns."""
        params, known = self.params, len(self.prompt) + len(self.output)
        return {
            **{name: _signed(getattr(params, name)) for name in _PARAMETERS},
            "length": known - 1,
            "anchor": (self.output or self.prompt)[-1],
            "generated": len(self.output),
            "max_tokens": params.max_tokens,
            "min_tokens": params.min_tokens,
            "limit": params.context_limit,
            "draft_limit": _NO_LIMIT if params.draft_limit is None else params.draft_limit,
            "active": True,
            "penalised": params.penalised,
            "biased": bool(params.logit_bias),
            "unfiltered": params.unfiltered,
            "masked": params.masked,
        }


def mask_words(vocab: int) -> int:
    """Words of 32 bits in the mask of one row."""
    return -(-vocab // 32)


def _signed(value: float) -> float:
    """A seed of 64 bits without sign fills the integer of the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass(frozen=True)
class SlotState:
    """The state of every slot. `length` counts tokens in K/V; the anchor has that position and is not in K/V yet.

    Each sampling parameter that is a number has a column of its name. Of a masked slot, row j of a span may choose the
    tokens whose bits are set in `mask_SWN[slot, j]`, token t in bit t % 32 of word t // 32. The masks hold for the
    drafts `walked_SK` alone: another draft is not accepted.
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
    unfiltered_S: Tensor
    masked_S: Tensor
    bias_SV: Tensor
    prompt_seen_SV: Tensor
    counts_SV: Tensor
    stop_ids_SM: Tensor
    history_SC: Tensor
    mask_SWN: Tensor
    walked_SK: Tensor
    host: dict[int, SlotParams] = field(default_factory=dict)

    @classmethod
    def allocate(
        cls,
        slots: int,
        vocab: int,
        context: int,
        *,
        stop_ids: int = 32,
        width: int = 1,
        device: torch.device | str = "cpu",
        history_SC: Tensor | None = None,
    ) -> "SlotState":
        """Return inactive slots plus the pad slot, for spans of `width`; `history_SC` may live in shared memory."""
        count = slots + 1

        def make(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((count, *shape), dtype=dtype, device=device)

        scalars: dict[str, Any] = {f"{name}_S": make(kind) for kind, names in _KINDS.items() for name in names}
        return cls(
            **scalars,
            bias_SV=make(torch.float32, vocab),
            prompt_seen_SV=make(torch.bool, vocab),
            counts_SV=make(torch.int32, vocab),
            stop_ids_SM=make(torch.int64, stop_ids).fill_(-1),
            history_SC=make(torch.int32, context) if history_SC is None else history_SC,
            mask_SWN=make(torch.int32, width, mask_words(vocab)),
            walked_SK=make(torch.int64, width - 1).fill_(-1),
        )

    def admit(self, *entrants: Entrant) -> None:
        """Fill slots for prompts and outputs so far, in as many copies for many requests as for one.

        The last known token becomes the anchor; `length` is its position, so a W = 1 accept over the logits of that
        token commits the next one.

        Raises:
            ValueError: more stop ids than the buffer holds.
        """
        device, most = self.counts_SV.device, self.stop_ids_SM.shape[1]
        for entrant in entrants:
            if len(entrant.params.stop_ids) > most:
                raise ValueError(f"{len(entrant.params.stop_ids)} stop ids, at most {most} fit")
        slots = [entrant.slot for entrant in entrants]
        slots_B = upload(slots, torch.int64, device)
        scalars = [entrant.scalars() for entrant in entrants]
        for kind, names in _KINDS.items():
            values_CB = upload([each[name] for name in names for each in scalars], kind, device).view(len(names), -1)
            for name, values_B in zip(names, values_CB, strict=True):
                getattr(self, f"{name}_S").index_copy_(0, slots_B, values_B)
        stops = [[*entrant.params.stop_ids, *[-1] * (most - len(entrant.params.stop_ids))] for entrant in entrants]
        self.stop_ids_SM.index_copy_(0, slots_B, upload(np.array(stops), torch.int64, device))
        known = [np.array((*entrant.prompt, *entrant.output)) for entrant in entrants]
        self._vocabulary(entrants, known, slots_B)
        cells_N = upload(flat_cells(slots, map(np.arange, map(len, known)), self.history_SC), torch.int64, device)
        self.history_SC.view(-1).index_copy_(0, cells_N, upload(np.concatenate(known), torch.int32, device))
        self.host.update((entrant.slot, entrant.params) for entrant in entrants)

    def release(self, *slots: int) -> None:
        """Make slots inactive: their rows commit nothing from now on."""
        self.active_S.index_fill_(0, upload(slots, torch.int64, self.active_S.device), False)
        for slot in slots:
            self.host.pop(slot, None)

    def columns(self, kernel: Any) -> dict[str, Tensor]:
        """The arguments of a Triton kernel that are columns of scalars: temperature_ptr is temperature_S."""
        pointers = {name: f"{name.removesuffix('_ptr')}_S" for name in kernel.arg_names if name.endswith("_ptr")}
        found = {name: getattr(self, column) for name, column in pointers.items() if hasattr(self, column)}
        return {name: one_S.view(torch.uint8) if one_S.dtype == torch.bool else one_S for name, one_S in found.items()}

    def _vocabulary(self, entrants: Sequence[Entrant], known: Sequence[NDArray[Any]], slots_B: Tensor) -> None:
        device = self.counts_SV.device
        biased = [one.slot for one in entrants if (was := self.host.get(one.slot)) is None or was.logit_bias]
        if biased:
            self.bias_SV.index_fill_(0, upload(biased, torch.int64, device), 0.0)
        biases = [(one.slot, dict(one.params.logit_bias)) for one in entrants if one.params.logit_bias]
        if biases:
            slots, values = [slot for slot, _ in biases], [value for _, bias in biases for value in bias.values()]
            cells_N = upload(flat_cells(slots, [list(bias) for _, bias in biases], self.bias_SV), torch.int64, device)
            self.bias_SV.view(-1).index_copy_(0, cells_N, upload(values, torch.float32, device))
        self.counts_SV.index_fill_(0, slots_B, 0)
        self.prompt_seen_SV.index_fill_(0, slots_B, False)
        slots = [one.slot for one in entrants]
        prompts = [ids[: len(one.prompt)] for one, ids in zip(entrants, known, strict=True)]
        seen = flat_cells(slots, prompts, self.prompt_seen_SV)
        self.prompt_seen_SV.view(-1).index_fill_(0, upload(seen, torch.int64, device), True)
        if any(one.output for one in entrants):
            said = flat_cells(slots, [one.output for one in entrants], self.counts_SV)
            ids_N = upload(said, torch.int64, device)
            self.counts_SV.view(-1).index_add_(0, ids_N, torch.ones_like(ids_N, dtype=torch.int32))


def flat_cells(rows: Sequence[int], columns: Iterable[Sequence[int] | NDArray[Any]], table_SX: Tensor) -> NDArray[Any]:
    """Return the places of some columns of each of some rows in a flat table.

    Raises:
        IndexError: the table has no such column.
    """
    width, every = table_SX.shape[1], [np.asarray(some, np.int64) for some in columns]
    if any(len(some) and not 0 <= some.min() <= some.max() < width for some in every):
        raise IndexError(f"a column is not one of {width}")
    return np.concatenate([some + row * width for row, some in zip(rows, every, strict=True)])


@dataclass(frozen=True)
class RoundResult:
    """What a round committed, by row: `count` of `tokens` (the rest -1), drafts accepted among them and offered.

    These are views of `packed_N`, so that one transfer reads them. `path_BW` are the rows on the accepted path by
    depth, and behind its end all rows in order, and `parents_BK` those that each node follows; None for chains, which
    have no other rows. With a `table` rows of the round are those of its pieces.
    """

    tokens_BW: Tensor
    count_B: Tensor
    accepted_B: Tensor
    drafted_B: Tensor
    end_B: Tensor
    packed_N: Tensor
    path_BW: Tensor | None = None
    table: RowTable | None = None
    parents_BK: Tensor | None = None

    @classmethod
    def allocate(
        cls,
        bucket: int,
        width: int,
        device: torch.device | str = "cpu",
        trees: bool = False,
        table: RowTable | None = None,
    ) -> "RoundResult":
        """Return static buffers for one shape of round, of chains or of trees."""
        sizes = [bucket * width, 4 * bucket, *([bucket * width, bucket * (width - 1)] if trees else [])]
        packed_N = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        tokens_N, counts_N, *of_trees = packed_N.split(sizes)
        tokens_BW = tokens_N.view(bucket, width).fill_(-1)
        count_B, accepted_B, drafted_B, end_B = counts_N.view(4, bucket).unbind()
        chains = [part_N.view(bucket, -1).copy_(torch.arange(len(part_N) // bucket)) for part_N in of_trees]
        path_BW, parents_BK = chains or (None, None)
        return cls(tokens_BW, count_B, accepted_B, drafted_B, end_B, packed_N, path_BW, table, parents_BK)

    def by_depth(self, rows_BW: Tensor) -> Tensor:
        """Return what belongs to rows [B, W, ...] in the order of the accepted path."""
        if self.table is not None:
            return rows_BW.flatten(0, 1)[self.table.rows_of(self.tokens_BW.shape[1])]
        if self.path_BW is None:
            return rows_BW
        index = self.path_BW.view(*self.path_BW.shape, *[1] * (rows_BW.ndim - 2))
        return rows_BW.gather(1, index.expand_as(rows_BW))

    def by_row(self, tokens_BW: Tensor) -> Tensor:
        """Return tokens of the accepted path at their rows; rows on no path have -1."""
        if self.table is not None:
            return tokens_BW[self.table.lines_P.long()[:, None], self.table.places_PG]
        if self.path_BW is None:
            return tokens_BW
        return torch.full_like(tokens_BW, -1).scatter_reduce_(1, self.path_BW, tokens_BW, "amax")
