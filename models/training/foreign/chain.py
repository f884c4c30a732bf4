"""EAGLE-3 as it is trained: one layer over a token's embedding and the state of the position before, on its own states.

The target's states are a product of its features. The state dict is DeepSpec's layout; embedding and head are the
target's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.training.export import chain_config
from models.training.foreign.trained import Trained
from models.training.network import Layer, Projections, RMSNorm, Rotation, init_weights
from models.training.settings import Shape


class ChainLayer(Layer):
    """The one layer, whose attention reads two rows side by side."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.self_attn = Projections(shape, inputs=2)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Eagle3(Trained):
    """A chain of drafts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.hidden_size * len(shape.target_layer_ids), shape.hidden_size, bias=False)
        self.layers = nn.ModuleList([ChainLayer(shape)])
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        init_weights(self)

    def config(self, sizes: Sequence[int]) -> dict[str, object]:
        """Return config.json; a chain has no sizes."""
        return chain_config(self.shape)

    def steps(self, embedded: Tensor, features: Tensor, rotation: Rotation, seen: Tensor, count: int) -> list[Tensor]:
        """Return final-normed rows [batch, rows, width] of each step.

        Row p of step i is the i-th of a chain whose anchor is i rows before. It has the token of its place, and the
        state of row p - 1 of the step before; the target's in the first. `seen` [batch, rows, rows] are rows of the
        target that a row may see, itself the last. A chain sees them up to its anchor, and its own rows.
        """
        (layer,) = self.layers
        assert isinstance(layer, ChainLayer)
        states, kept, outs = _later(self.fc(features), 1, 1), list[tuple[Tensor, Tensor]](), list[Tensor]()
        for step in range(count):
            entered = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(states)), -1)
            stream = states + _attend(layer.self_attn, entered, rotation, kept, _before(seen, step))
            stream = stream + layer.mlp(layer.post_attention_layernorm(stream))
            outs.append(self.norm(stream))
            states = _later(stream, 1, 1)
        return outs


def _attend(
    attention: Projections, entered: Tensor, rotation: Rotation, kept: list[tuple[Tensor, Tensor]], hidden: Tensor
) -> Tensor:
    """Let each row see the target's rows up to its chain's anchor, then those of its own chain."""
    keys, values = attention.keys_values(entered, rotation)
    groups = attention.groups
    kept.append((keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)))
    q, step = attention.queries(entered, rotation) * attention.head_dim**-0.5, len(kept) - 1
    first_k, first_v = kept[0]
    scores = [(q @ first_k.transpose(-1, -2)).masked_fill(hidden[:, None], -1e9)]
    scores += [(q * _later(own, step - at, 2)).sum(-1, keepdim=True) for at, (own, _) in enumerate(kept) if at]
    shares = torch.cat(scores, -1).float().softmax(-1).to(q.dtype)
    rows = q.shape[2]
    mixed = shares[..., :rows] @ first_v
    for at, (_, own) in enumerate(kept[1:], start=1):
        mixed = mixed + shares[..., rows + at - 1, None] * _later(own, step - at, 2)
    out: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(-2))
    return out


def _before(seen: Tensor, step: int) -> Tensor:
    """Return what rows of a step do not see of the target's rows: those behind their anchor, too."""
    places = torch.arange(seen.shape[1], device=seen.device)
    return ~(seen & (places <= places[:, None] - step))


def _later(rows: Tensor, by: int, dim: int) -> Tensor:
    """Return rows moved down along a dimension, so that each has that of `by` rows before; the first ones are zeros."""
    if not by:
        return rows
    kept = rows.narrow(dim, 0, rows.shape[dim] - by)
    return torch.cat((torch.zeros_like(rows.narrow(dim, 0, by)), kept), dim)
