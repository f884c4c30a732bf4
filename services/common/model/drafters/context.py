"""The target's half of a drafter's checkpoint: makes keys and values of context rows for every drafter layer.

They depend on the target's features alone, so the target writes them while it verifies.
"""

import logging
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import linear
from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm import reference as norms
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.store_context import store_context
from services.common.kernels.torchscript import compiled
from services.common.model.drafters import check_pair, open_drafter, own_shapes, read_any_spec
from services.common.model.drafters.chain_context import load_chain_context
from services.common.model.drafters.spec import (
    FC,
    HIDDEN_NORM,
    INPUT_NORM,
    ChainSpec,
    DrafterSpec,
    block_shapes,
    context_shapes,
    prefixes,
    tap_norms,
)
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.stack import rotation_table
from services.common.model.states.draft_context import Chained, DraftContext
from services.common.model.states.state_sizes import kv_shape
from services.common.model.states.states import Rows
from services.common.model.target import Target
from services.common.model.weights.weights import elements

_LOG = logging.getLogger(__name__)
host_store = store_context.reference  # TorchScript takes a plain function


class BlockContext:
    """The target's half: features -> fc -> hidden_norm -> keys and values of every drafter layer.

    Where each tap has a norm, and each layer's stands before its keys and values, their weights are folded into `fc`
    and into these products: what is left is to divide rows by their root mean square.
    """

    seed_width = 0

    def __init__(
        self,
        spec: DrafterSpec,
        fc_DF: Tensor,
        hidden_norm_D: Tensor,
        kv_FD: Tensor,
        key_norms_LD: Tensor,
        revision: str,
        positions: int,
    ) -> None:
        """`positions` is the target's context limit; the drafter's own limit is the length that it was trained on."""
        self.spec = spec
        self.revision = revision
        self._fc_DF, self._kv_FD, self._hidden_norm_D = fc_DF, kv_FD, hidden_norm_D
        self._ones_D = torch.ones_like(hidden_norm_D) if spec.normed_taps else None
        self._key_norm_LHD = key_norms_LD[:, None].repeat(1, spec.attention.kv_heads, 1)
        self._table = rotation_table(spec, positions, fc_DF.dtype, fc_DF.device)
        self._host: _HostContext | None = None
        if not on_kernel(fc_DF):
            weights = fc_DF, hidden_norm_D, kv_FD, self._key_norm_LHD
            self._host = compiled(_HostContext(*weights, spec.norm_eps, spec.normed_taps))

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and context K/V."""
        return self._fc_DF.dtype

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks of the target whose residual streams make the features."""
        return self.spec.target_layer_ids

    @property
    def most_rows(self) -> int | None:
        """The anchor, and the drafts of a block as the drafter's checkpoint was made for."""
        return 1 + self.spec.most_drafts

    @property
    def ranks(self) -> bool:
        """Every kind of head does."""
        return True

    @property
    def elements(self) -> int:
        """Numbers of this half's weights."""
        return elements(context_shapes(self.spec))

    @property
    def drafter_elements(self) -> int:
        """Numbers of the other half's weights."""
        return elements(block_shapes(self.spec) | own_shapes(self.spec))

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Shapes [outputs, depth] of the two weights that rows are multiplied by."""
        (fused, features), (outputs, depth) = self._fc_DF.shape, self._kv_FD.shape
        return (fused, features), (outputs, depth)

    def kv_shape(self, blocks: int, block_size: int) -> tuple[int, ...]:
        """Return the shape [Ld, 2, N, S, Hkv, Dh] of the context K/V, for the same block ids as the target's."""
        return kv_shape(self.spec, blocks, block_size)

    @torch.no_grad()
    def write(self, features_TF: Tensor, rows: Rows, draft_kv_L2NSHD: Tensor, chained: Chained | None = None) -> None:
        """Write the context K/V of rows at their own positions and slots.

        It may write rows of drafts that are rejected later: positions from the new length on are written again before
        they are read.
        """
        rotation = self._table.at(rows.positions_T)
        if self._host is None:
            self._by_kernels(features_TF, rows, rotation, draft_kv_L2NSHD)
        else:
            self._host(features_TF, rotation, draft_kv_L2NSHD, rows.slots_T)

    def _by_kernels(self, features_TF: Tensor, rows: Rows, rotation: Rotation, draft_kv_L2NSHD: Tensor) -> None:
        eps, ones_D = self.spec.norm_eps, self._ones_D
        if ones_D is not None:
            features_TF = rms_norm(features_TF.reshape(-1, len(ones_D)), ones_D, eps).view(features_TF.shape)
        fused_TD = linear(features_TF, self._fc_DF)
        context_TD = rms_norm(fused_TD, self._hidden_norm_D, eps)
        if ones_D is not None:
            context_TD = rms_norm(context_TD, ones_D, eps)
        mixed_TF = linear(context_TD, self._kv_FD)
        store_context(mixed_TF, self._key_norm_LHD, rotation, draft_kv_L2NSHD, rows.slots_T, eps)


class _HostContext(nn.Module):
    """The same on a CPU."""

    normed: Final[bool]

    def __init__(
        self, fc_DF: Tensor, hidden_norm_D: Tensor, kv_FD: Tensor, key_norm_LHD: Tensor, eps: float, normed: bool
    ) -> None:
        super().__init__()
        self.normed = normed
        self.fc, self.kv = product(fc_DF), product(kv_FD)
        self.hidden_norm_D, self.key_norm_LHD, self.eps = hidden_norm_D, key_norm_LHD, eps

    def forward(self, features_TF: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, slots_T: Tensor) -> None:
        """Write the context K/V of rows at their slots."""
        if self.normed:
            taps_TND = features_TF.unflatten(1, [-1, self.hidden_norm_D.shape[0]])
            features_TF = norms.rms_norm(taps_TND, None, self.eps).flatten(1)
        context_TD = norms.rms_norm(self.fc(features_TF), self.hidden_norm_D, self.eps)
        if self.normed:
            context_TD = norms.rms_norm(context_TD, None, self.eps)
        host_store(self.kv(context_TD), self.key_norm_LHD, rotation, kv_L2NSHD, slots_T, self.eps)


def open_context(
    path: str | Path, target: Target, random_weights: bool = False, anchored: bool | None = None
) -> DraftContext:
    """Read the target's half of any drafter checkpoint, and check that it was made for this target.

    `anchored` is as `read_any_spec` has it.

    Raises:
        ModelError: the checkpoint is damaged, or belongs to another target.
    """
    spec = read_any_spec(resolve_folder(path), anchored)
    if isinstance(spec, ChainSpec):
        return load_chain_context(path, spec, target, random_weights)
    return load_context(path, target, random_weights, anchored)


def load_context(
    path: str | Path, target: Target, random_weights: bool = False, anchored: bool | None = None
) -> BlockContext:
    """Read the target's half of a drafter checkpoint and check that it was made for this target.

    Raises:
        ModelError: the checkpoint is damaged, or belongs to another target.
    """
    folder = resolve_folder(path)
    spec, checkpoint = open_drafter(folder, target.device, random_weights, anchored)
    check_pair(folder, spec, target.spec)
    positions = target.spec.max_positions
    if spec.max_positions < positions:
        _LOG.warning(
            "%s: the drafter was made for %d positions, the target for %d: it drafts in all of them, "
            "but fewer drafts may be accepted beyond its own", folder, spec.max_positions, positions
        )  # fmt: skip
    dtype, device = target.dtype, target.device
    tensors = {name: checkpoint.read(name, shape, dtype) for name, shape in context_shapes(spec).items()}
    if spec.normed_taps:
        _fold_norms(spec, tensors)
    layers = [f"{prefix}.self_attn" for prefix in prefixes(spec)]
    kv_FD = torch.cat([tensors[f"{layer}.{name}.weight"] for layer in layers for name in ("k_proj", "v_proj")])
    norms_LD = torch.stack([tensors[f"{layer}.k_norm.weight"] for layer in layers])
    fc_DF, hidden_norm_D = tensors[FC].to(device), tensors[HIDDEN_NORM].to(device)
    return BlockContext(
        spec, fc_DF, hidden_norm_D, kv_FD.to(device), norms_LD.to(device), checkpoint.revision, positions
    )


def _fold_norms(spec: DrafterSpec, tensors: dict[str, Tensor]) -> None:
    """Multiply columns of `fc` by the weights of taps' norms, and those of keys and values by their layer's."""

    def fold(name: str, norm_D: Tensor) -> None:
        tensors[name] = (tensors[name].double() * norm_D.double()).to(norm_D.dtype)

    fold(FC, torch.cat([tensors[name] for name in tap_norms(spec)]))
    for prefix in prefixes(spec):
        for name in ("k_proj", "v_proj"):
            fold(f"{prefix}.self_attn.{name}.weight", tensors[f"{prefix}.{INPUT_NORM}"])
