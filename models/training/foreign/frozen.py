"""The target, frozen: whole packed rows for training, and one token a slot for writing."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.training.network import Rotation, fold, rotate
from services.common.kernels.rope import Frequencies
from services.common.model.families import open_family
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.spec import Experts, ModelSpec
from services.common.model.weights.weights import LayerWeights, ModelWeights

BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Those that take any mask."""
Cache = list[tuple[Tensor, Tensor]]
"""Keys and values [slots, K/V heads, positions, head_dim] of every layer."""


class FrozenTarget:
    """A dense target of any family that is served; nothing of it takes a gradient."""

    def __init__(self, spec: ModelSpec, weights: ModelWeights, compiled: bool = False) -> None:
        if len(spec.groups) > 1:
            raise ValueError("a drafter can be trained for targets with one kind of attention: this one has windows")
        if spec.delta is not None or spec.attention.gated:
            raise ValueError("a drafter can be trained for dense targets only: this one has recurrent or gated layers")
        if any(isinstance(layer.ffn, Experts) for layer in spec.layers):
            raise ValueError("a drafter can be trained for dense targets only: this one has experts")
        self.spec, self.weights = spec, weights
        self.newest: tuple[object, Sequence[int], tuple[Tensor, Tensor]] | None = None
        """What was read last: a batch, the layers, and what came of it."""
        rope = spec.attention.rope
        self._frequencies = Frequencies.of(spec.attention.head_dim, rope.theta, rope.scaling)
        self._turns = self._frequencies.turns_H.to(weights.embed_VD.device)
        self._before, self._after = _before_mixing, _after_mixing
        if compiled:
            self._before = torch.compile(_before_mixing, dynamic=False)
            self._after = torch.compile(_after_mixing, dynamic=False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights.embed_VD.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and rows."""
        return self.weights.embed_VD.dtype

    def rotation(self, positions: Tensor) -> Rotation:
        """Return cosines and sines [..., 1, rows, head_dim] of positions [..., rows]."""
        angles = positions[..., None].float() * self._turns
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(-3)
        scale = self._frequencies.scale
        return angles.cos() * scale, angles.sin() * scale

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embedded tokens [..., hidden]."""
        rows = F.embedding(ids, self.weights.embed_VD)
        return rows if self.spec.embed_scale == 1.0 else rows * self.spec.embed_scale

    def head(self, normed: Tensor) -> Tensor:
        """Return the logits of final-normed rows."""
        return F.linear(normed, self.weights.lm_head_VD)

    @torch.no_grad()
    def read(self, ids: Tensor, positions: Tensor, bias: Tensor, taps: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Run packed rows [batch, length]; `bias` [batch, 1, length, length] is added to the scores.

        Returns:
            Residual streams after the layers `taps`, concatenated, and final-normed rows, both [batch, length, width].
        """
        rotation, kept = self.rotation(positions), []
        groups = self.spec.attention.heads // self.spec.attention.kv_heads

        def mix(_index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)

        x = self.embed(ids)
        for index in range(len(self.weights.layers)):
            x = self._layer(index, x, rotation, mix)
            if index in taps:
                kept.append(x)
        return torch.cat(kept, dim=-1), self._normed(x)

    def new_cache(self, slots: int, length: int) -> Cache:
        """Return the empty cache of every layer."""
        attention = self.spec.attention
        size = (slots, attention.kv_heads, length, attention.head_dim)
        return [(self._zeros(size), self._zeros(size)) for _ in self.weights.layers]

    @torch.no_grad()
    def step(self, ids: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """Run one token a slot at positions [slots] of its own, and return the logits [slots, vocabulary]."""
        slots = torch.arange(len(ids), device=ids.device)
        attend = _slot_attention(self.device)

        def mix(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = cache[index]
            keys[slots, :, positions], values[slots, :, positions] = k[:, :, 0], v[:, :, 0]
            return attend(q[:, :, 0], keys, values, positions)[:, :, None]

        x, rotation = self.embed(ids)[:, None], self.rotation(positions[:, None])
        for index in range(len(self.weights.layers)):
            x = self._layer(index, x, rotation, mix)
        return self.head(self._normed(x)[:, 0])

    def _layer(
        self, index: int, x: Tensor, rotation: Rotation, mix: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        layer, spec = self.weights.layers[index], self.spec
        q, k, v = self._before(x, rotation, layer, spec)
        with sdpa_kernel(BACKENDS):
            mixed = mix(index, q, k, v)
        rows: Tensor = self._after(x, mixed.transpose(1, 2).flatten(2), layer, spec)
        return rows

    def _normed(self, x: Tensor) -> Tensor:
        return _norm(x, self.weights.norm_D, self.spec)

    def _zeros(self, size: tuple[int, ...]) -> Tensor:
        return torch.zeros(size, dtype=self.dtype, device=self.device)


def load_frozen(path: str | Path, device: str, compiled: bool = False) -> FrozenTarget:
    """Read a folder or a GGUF file: in bfloat16 on a GPU, in float32 on a CPU.

    Raises:
        ModelError: the checkpoint is damaged, incomplete or of a family that is not served.
        ValueError: it is served, but a drafter cannot be trained for it here.
    """
    folder, where = resolve_folder(path), torch.device(device)
    family, spec = open_family(folder)
    dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    return FrozenTarget(spec, family.read_weights(spec, open_checkpoint(folder), dtype, where), compiled)


def _slot_attention(device: torch.device) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    if device.type == "cpu":
        return attend_slots
    # Triton is not where there is no GPU.
    from models.training.foreign.slot_attention import attend

    return attend


def attend_slots(q: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Return mixed rows [slots, heads, head_dim]: each slot's query sees keys 0 to its place, that included."""
    seen = torch.arange(keys.shape[2], device=q.device) <= places[:, None]
    # The heads of a group become the rows of one query: keys are read once.
    grouped = fold(q, 1, q.shape[1] // keys.shape[1])
    return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen[:, None, None]).flatten(1, 2)


def _before_mixing(
    x: Tensor, rotation: Rotation, layer: LayerWeights, spec: ModelSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values [batch, heads, rows, head_dim]."""
    own, attention = layer.attention, spec.attention
    assert isinstance(own.qkv_FD, Tensor), "a frozen target keeps its weights whole"
    mixed = fold(F.linear(_norm(x, layer.input_norm_D, spec), own.qkv_FD, own.bias_F), -1, attention.head_dim)
    turning, values = mixed.split([attention.heads + attention.kv_heads, attention.kv_heads], dim=2)
    if own.head_norm_HD is not None:
        turning = _norm(turning, own.head_norm_HD, spec)
    turned = rotate(turning.transpose(1, 2), rotation)
    return turned[:, : attention.heads], turned[:, attention.heads :], values.transpose(1, 2)


def _after_mixing(x: Tensor, mixed: Tensor, layer: LayerWeights, spec: ModelSpec) -> Tensor:
    """Return the residual stream after the block."""
    own, ffn = layer.attention, layer.dense
    assert isinstance(own.o_DF, Tensor) and isinstance(ffn.gate_up_FD, Tensor) and isinstance(ffn.down_DF, Tensor)
    x = x + F.linear(mixed, own.o_DF)
    gate, up = F.linear(_norm(x, layer.post_norm_D, spec), ffn.gate_up_FD).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, ffn.down_DF)


def _norm(x: Tensor, weight: Tensor, spec: ModelSpec) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + spec.norm_eps)
    return ((weight.float() + spec.norm_offset) * wide).to(x.dtype)
