"""The target's half of a chain: keys and values of each row, of its token and of the state of the row before it.

They lie under the position of the token. So a block's content follows from its own tokens and those before, and all of
it is known within the forward that computes a row.
"""

import logging
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.embedding import embedding
from services.common.kernels.linear.product import product
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.torchscript import compiled
from services.common.model.drafters import chain_kind, check_pair, checkpoint_shapes, open_tensors, taps_of
from services.common.model.drafters.chain_cell import ChainParts
from services.common.model.drafters.spec import EMBED, ChainSpec
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.gpu.chain import KernelChainRows
from services.common.model.stack import rotation_table
from services.common.model.states.draft_context import Chained
from services.common.model.states.state_sizes import kv_shape
from services.common.model.states.states import Rows
from services.common.model.target import Target
from services.common.model.weights.weights import Shapes, elements

_LOG = logging.getLogger(__name__)
_WRITTEN = "k_proj.weight", "v_proj.weight", "k_norm.weight", "k_proj.bias", "v_proj.bias"


class ChainContext:
    """Features -> states -> with embedded tokens keys and values of the one layer."""

    most_rows: int | None = None
    """A chain has no end of its own."""
    ranks = False
    """A step needs the token before: trees would take a step for each node."""

    def __init__(
        self, spec: ChainSpec, parts: ChainParts, target: Target, revision: str, embed_VD: Tensor | None = None
    ) -> None:
        """`embed_VD` is an embedding of the checkpoint's own, where it differs from the target's."""
        self.spec, self.revision = spec, revision
        self._target, self._embed_VD = target, embed_VD
        self._entered = parts.layer.attention.qkv_FD.shape[1]
        self._table = rotation_table(spec, target.spec.max_positions, target.dtype, target.device)
        self._rows: _HostRows | KernelChainRows
        if on_kernel(target.embed_VD):
            self._rows, self._fuse = KernelChainRows(spec, parts.entry, parts.layer), parts.fuse
        else:
            self._rows, self._fuse = compiled(_HostRows(spec, parts)), compiled(parts.fuse)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, states and context K/V."""
        return self._target.dtype

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks of the target whose residual streams make the features."""
        return self.spec.target_layer_ids

    @property
    def elements(self) -> int:
        """Numbers of this half's weights."""
        shapes: Shapes = dict(chain_kind(self.spec).entry_shapes(self.spec))
        written = {name: shape for name, shape in checkpoint_shapes(self.spec).items() if name.endswith(_WRITTEN)}
        return elements(shapes | written)

    @property
    def drafter_elements(self) -> int:
        """Numbers of the other half's weights."""
        return elements(checkpoint_shapes(self.spec))

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Shapes [outputs, depth] of what makes states or stands in front of attention, and of keys and values."""
        fused = (shape for shape in chain_kind(self.spec).entry_shapes(self.spec).values() if len(shape) > 1)
        own = self.spec.attention
        return *((outputs, depth) for outputs, depth in fused), (2 * own.kv_heads * own.head_dim, self._entered)

    @property
    def seed_width(self) -> int:
        """Numbers of a state."""
        return self.spec.hidden_size

    def kv_shape(self, blocks: int, block_size: int) -> tuple[int, ...]:
        """Return the shape [1, 2, N, S, Hkv, Dh] of the context K/V, for the same block ids as the target's."""
        return kv_shape(self.spec, blocks, block_size)

    @torch.no_grad()
    def write(self, features_TF: Tensor, rows: Rows, draft_kv_L2NSHD: Tensor, chained: Chained | None = None) -> Tensor:
        """Write the context K/V of rows at their own positions and slots; return the rows' states [T, D].

        Rows of drafts that are rejected later are written again before they are read, as `BlockContext` has it.
        """
        assert chained is not None, "a chain is made of tokens and states"
        states_TD: Tensor = self._fuse(features_TF)
        before_TD = chained.seeds.before(states_TD, rows)
        table_VD = self._target.embed_VD if self._embed_VD is None else self._embed_VD
        embedded_TD = embedding(chained.ids_T, table_VD, self.spec.embed_scale)
        rotation = self._table.at(rows.positions_T)
        self._rows(embedded_TD, before_TD, rotation, draft_kv_L2NSHD[0], rows.slots_T)
        return states_TD


class _HostRows(nn.Module):
    """Keys and values of rows on a CPU."""

    def __init__(self, spec: ChainSpec, parts: ChainParts) -> None:
        super().__init__()
        attention, weights = spec.attention, parts.layer.attention
        queries = attention.heads * attention.head_dim
        assert isinstance(weights.qkv_FD, Tensor), "eight bits are for drafts"
        bias_F, norm_HD = weights.bias_F, weights.head_norm_HD
        self.entry = parts.entry
        self.kv = product(weights.qkv_FD[queries:].clone(), None if bias_F is None else bias_F[queries:].clone())
        self.norm_HD = None if norm_HD is None else norm_HD[attention.heads :].clone()
        self.eps, self.offset, self.head_dim = spec.norm_eps, spec.norm_offset, attention.head_dim

    def forward(
        self, embedded_TD: Tensor, before_TD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor
    ) -> None:
        """Write them at the rows' slots."""
        entered_TX, _ = self.entry(embedded_TD, before_TD)
        heads_T2HD = self.kv(entered_TX).view(entered_TX.shape[0], 2, -1, self.head_dim)
        keys_THD = norm_rope(heads_T2HD[:, 0], self.norm_HD, rotation, self.eps, self.offset)
        flat_2PHD = kv_2NSHD.flatten(1, 2)
        flat_2PHD[0].index_copy_(0, slots_T, keys_THD)
        flat_2PHD[1].index_copy_(0, slots_T, heads_T2HD[:, 1])


def load_chain_context(path: str | Path, spec: ChainSpec, target: Target, random_weights: bool = False) -> ChainContext:
    """Read the target's half of a chain, and check that it was made for this target.

    Raises:
        ModelError: the checkpoint is damaged, or belongs to another target.
    """
    folder = resolve_folder(path)
    taps = taps_of(folder, spec, len(target.spec.layers))
    if not spec.target_layer_ids:
        _LOG.info("%s: it names no layers to read: after %s, counted from 0, as EAGLE-3 has it", folder, taps)
    spec = replace(spec, target_layer_ids=taps)
    check_pair(folder, spec, target.spec)
    if spec.max_positions < target.spec.max_positions:
        _LOG.warning(
            "%s: the drafter was made for %d positions, the target for %d: it drafts in all of them, but fewer drafts "
            "may be accepted beyond its own", folder, spec.max_positions, target.spec.max_positions
        )  # fmt: skip
    spec, checkpoint = open_tensors(folder, spec, target.device, random_weights)
    parts = chain_kind(spec).read_parts(spec, checkpoint, target.dtype, target.device)
    embed_VD = None
    if EMBED in spec.own_tables:
        own_VD = checkpoint.read(EMBED, (spec.vocab_size, spec.hidden_size), target.dtype).to(target.device)
        embed_VD = None if torch.equal(own_VD, target.embed_VD) else own_VD
    return ChainContext(spec, parts, target, checkpoint.revision, embed_VD)
