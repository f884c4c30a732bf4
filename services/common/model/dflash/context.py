"""The target's half of a DFlash checkpoint: context rows get no query, only keys and values in every drafter layer.

Those are a projection of the target's features alone, so the target writes them while it verifies.
"""

import logging
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.compiled import compiled
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import linear
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span
from services.common.kernels.store_context import store_context
from services.common.model.checkpoint import resolve_folder
from services.common.model.dflash.spec import FC, HIDDEN_NORM, DrafterSpec, context_shapes, open_drafter, prefixes
from services.common.model.errors import ModelError
from services.common.model.host import HostContext
from services.common.model.layers import rotation_table
from services.common.model.spec import ModelSpec
from services.common.model.target import Target

_LOG = logging.getLogger(__name__)


class DflashContext:
    """The target's half: features -> fc -> hidden_norm -> keys and values of every drafter layer."""

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
        """`positions` is the target's context: the drafter's own says what it was trained on, not where it ends."""
        self.spec = spec
        self.revision = revision
        self._fc_DF, self._kv_FD, self._hidden_norm_D = fc_DF, kv_FD, hidden_norm_D
        self._key_norm_LHD = key_norms_LD[:, None].repeat(1, spec.attention.kv_heads, 1)
        self._table = rotation_table(spec, positions, fc_DF.dtype, fc_DF.device)
        self._host: HostContext | None = None
        if not on_kernel(fc_DF):
            self._host = compiled(HostContext(fc_DF, hidden_norm_D, kv_FD, self._key_norm_LHD, spec))

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and context K/V."""
        return self._fc_DF.dtype

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks of the target whose residual streams make the features."""
        return self.spec.target_layer_ids

    def new_kv(self, blocks: int, block_size: int) -> Tensor:
        """Return zeroed context K/V [Ld, 2, N, S, Hkv, Dh] for the same block ids as the target's."""
        attention = self.spec.attention
        shape = (len(self.spec.layers), 2, blocks, block_size, attention.kv_heads, attention.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self._fc_DF.device)

    @torch.no_grad()
    def write(self, features_BWF: Tensor, span: Span, draft_kv_L2NSHD: Tensor) -> None:
        """Write the context K/V of a span's rows at their own positions and slots.

        Rows of drafts that turn out to be rejected may be written: positions from the new length on are never read
        before they are written again.
        """
        rotation = self._table.at(span.positions_BW.flatten())
        if self._host is None:
            self._by_kernels(features_BWF, span, rotation, draft_kv_L2NSHD)
        else:
            self._host(features_BWF.flatten(0, 1), rotation, draft_kv_L2NSHD, span.slots_T)

    def _by_kernels(self, features_BWF: Tensor, span: Span, rotation: Rotation, draft_kv_L2NSHD: Tensor) -> None:
        eps = self.spec.norm_eps
        fused_TD = linear(features_BWF.flatten(0, 1), self._fc_DF)
        context_TD = rms_norm(fused_TD, self._hidden_norm_D, eps)
        mixed_TF = linear(context_TD, self._kv_FD)
        store_context(mixed_TF, self._key_norm_LHD, rotation, draft_kv_L2NSHD, span.slots_T, eps)


def load_context(path: str | Path, target: Target, random_weights: bool = False) -> DflashContext:
    """Read the target's half of a drafter checkpoint and check that it was made for this target.

    Raises:
        ModelError: the checkpoint is damaged, or belongs to another target.
    """
    folder = resolve_folder(path)
    spec, checkpoint = open_drafter(folder, target.device, random_weights)
    _check_pair(folder, spec, target.spec)
    positions = target.spec.max_positions
    if spec.max_positions < positions:
        _LOG.warning(
            "%s: the drafter was made for %d positions, the target for %d: it drafts in all of them, "
            "but fewer drafts may be accepted beyond its own", folder, spec.max_positions, positions
        )  # fmt: skip
    dtype, device = target.dtype, target.device
    tensors = {name: checkpoint.read(name, shape, dtype) for name, shape in context_shapes(spec).items()}
    layers = [f"{prefix}.self_attn" for prefix in prefixes(spec)]
    kv_FD = torch.cat([tensors[f"{layer}.{name}.weight"] for layer in layers for name in ("k_proj", "v_proj")])
    norms_LD = torch.stack([tensors[f"{layer}.k_norm.weight"] for layer in layers])
    fc_DF, hidden_norm_D = tensors[FC].to(device), tensors[HIDDEN_NORM].to(device)
    return DflashContext(
        spec, fc_DF, hidden_norm_D, kv_FD.to(device), norms_LD.to(device), checkpoint.revision, positions
    )


def _check_pair(folder: Path, drafter: DrafterSpec, target: ModelSpec) -> None:
    for name, other in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size),
                        ("num_target_layers", len(target.layers))):  # fmt: skip
        if getattr(drafter, name) != other:
            raise ModelError(
                f"{folder}/config.json: {name}: {getattr(drafter, name)} differs from the target's {other}"
            )
