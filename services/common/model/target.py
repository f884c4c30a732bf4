"""The target: a model of any family over spans of rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.common.kernels.cap_logits import bounded
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import linear
from services.common.kernels.linear.product import product
from services.common.kernels.torchscript import compiled
from services.common.model.spec import ModelSpec
from services.common.model.stack import rotation_tables, target_stack
from services.common.model.states.state_sizes import Blocks
from services.common.model.states.states import CodedStates, Rows, SequenceStates
from services.common.model.weights.weights import ModelWeights, mixtures, products, weight_bytes, widened_bytes


class Target:
    """Weights and forward of a model; holds no request state. `lm_head_VD` is `embed_VD` itself when tied.

    `products` are the shapes [outputs, depth] of the weights whose sums have an order on a GPU. `weight_bytes` is what
    all weights take, `widened_bytes` what a packed one takes beside for products of many rows; 0: none is packed.
    `mixtures` are the experts of every layer that has them.
    """

    def __init__(self, spec: ModelSpec, weights: ModelWeights) -> None:
        self.spec = spec
        self.revision, self.elements = weights.revision, weights.elements
        self.embed_VD, self.lm_head_VD = weights.embed_VD, weights.lm_head_VD
        self.products = products(weights)
        self.weight_bytes, self.widened_bytes = weight_bytes(weights), widened_bytes(weights)
        self.mixtures = mixtures(weights)
        self._stack = target_stack(spec, weights.layers, weights.norm_D)
        self._head = None if on_kernel(self.lm_head_VD) else compiled(product(self.lm_head_VD))
        self._tables = rotation_tables(spec, spec.max_positions, self.dtype, self.device)
        self._windows = [own.window for own in spec.groups]

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, K/V and hidden states."""
        return self.embed_VD.dtype

    @property
    def logit_type(self) -> torch.dtype:
        """Type of logits on a GPU: bounded ones would be alike too often in a narrow type."""
        return torch.float32 if self.spec.logit_cap and self.dtype != torch.float64 else self.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embed_VD.device

    def use_shared(self, embed_VD: Tensor, lm_head_VD: Tensor | None) -> None:
        """Use copies of the embedding and of the head (None when tied) that live in shared memory."""
        assert embed_VD.shape == self.embed_VD.shape, "the shared embedding has another shape"
        self.embed_VD = embed_VD
        self.lm_head_VD = embed_VD if lm_head_VD is None else lm_head_VD

    def new_states(
        self, blocks: int, block_size: int, slots: int = 1, width: int = 1, snapshots: int = 0, coded: bool = False,
        near: int = 0,
    ) -> SequenceStates:  # fmt: skip
        """Return the states of sequences that share blocks, the pad block included, and have slots, the pad slot too.

        `width` is that of the widest span whose rows may be rejected, and `snapshots` the places for recurrent states.
        With `coded` keys and values are codes of eight bits, with `near` layers with a window have so many blocks.
        """
        kind = CodedStates if coded else SequenceStates
        return kind(self.spec, Blocks(blocks, block_size, near), self.dtype, self.device, slots, width, snapshots)

    @torch.no_grad()
    def forward(
        self, ids_T: Tensor, rows: Rows, states: SequenceStates, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor]:
        """Run rows, writing what they leave in the states of their sequences.

        Returns:
            Normalised hidden states [E, D] of the rows that are read in the end, all unless `rows` say which, and the
            residual streams after the blocks `taps`, concatenated in that order [T, len(taps) * D]. The last block's
            stream is normalised.
        """
        seen = rows.within(self._windows, states.places_N)
        rotations = [table.at(rows.positions_T) for table in self._tables]
        plans = states.plans(seen)
        outcome = self._stack(ids_T, self.embed_VD, seen, rotations, states.layers, taps, plans)
        states.fold(plans)
        return outcome

    @torch.no_grad()
    def logits(self, hidden: Tensor, room_TV: Tensor | None = None) -> Tensor:
        """Return the logits [..., V] of normalised hidden states: on the CPU, and where bounded, float32 or wider.

        `room_TV` is memory for them, one row for each hidden state; the CPU path makes its own.
        """
        if self._head is None:
            rows_TD, cap = hidden.flatten(0, -2), self.spec.logit_cap
            found_TV = bounded(linear(rows_TD, self.lm_head_VD), cap, room_TV) if cap else None
            found_TV = linear(rows_TD, self.lm_head_VD, room_TV) if found_TV is None else found_TV
            return found_TV.view(*hidden.shape[:-1], -1)
        logits: Tensor = self._head(hidden.flatten(0, -2)).view(*hidden.shape[:-1], -1)
        if self.spec.logit_cap:
            logits = logits.div_(self.spec.logit_cap).tanh_().mul_(self.spec.logit_cap)
        return logits if logits.dtype == torch.float64 else logits.float()
