"""The drafter's batched training forward equals the published one, a block at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.training.drafter import Drafter, DraftLayer, cut_blocks
from models.training.network import rotate, rotation_at
from models.training.settings import Shape

SHAPE = Shape(hidden_size=32, intermediate_size=48, num_heads=4, num_kv_heads=2, head_dim=8)
ANCHORS = torch.tensor([[3, 9, 17], [1, 4, 18]])


@pytest.fixture
def drafter() -> Drafter:
    torch.manual_seed(0)
    return Drafter(SHAPE).double().requires_grad_(False)


@pytest.fixture
def features() -> Tensor:
    return torch.randn(2, 20, 3 * SHAPE.hidden_size, dtype=torch.float64)


@pytest.fixture
def embeddings() -> Tensor:
    return torch.randn(2, 3 * SHAPE.block_size, SHAPE.hidden_size, dtype=torch.float64)


def test_every_block_equals_the_plain_forward(drafter: Drafter, features: Tensor, embeddings: Tensor) -> None:
    batched = drafter(features, ANCHORS, embeddings)
    for row in range(2):
        for block, anchor in enumerate(ANCHORS[row].tolist()):
            own = embeddings[row, block * SHAPE.block_size : (block + 1) * SHAPE.block_size]
            plain = _plain(drafter, features[row, :anchor], own, anchor)
            torch.testing.assert_close(batched[row, block], plain, atol=1e-6, rtol=0)


def test_features_from_the_anchor_on_are_invisible(drafter: Drafter, features: Tensor, embeddings: Tensor) -> None:
    before = drafter(features, ANCHORS, embeddings)
    features[0, 9:] += 7.0
    after = drafter(features, ANCHORS, embeddings)
    torch.testing.assert_close(after[0, :2], before[0, :2])
    assert not torch.allclose(after[0, 2], before[0, 2])


def test_blocks_past_the_end_are_marked() -> None:
    ids = torch.arange(20)[None]
    blocks = cut_blocks(ids, torch.zeros(1, 19, 1), torch.tensor([[5, 15]]), SHAPE.block_size)
    assert blocks.tokens[0, 0].tolist() == list(range(5, 13))
    assert blocks.inside[0, 1].tolist() == [True] * 5 + [False] * 3


def _plain(drafter: Drafter, features: Tensor, block: Tensor, anchor: int) -> Tensor:
    """Run one block over an explicit concatenation of context and block, without any mask."""
    context, x = drafter.hidden_norm(drafter.fc(features)), block
    places = torch.arange(anchor + len(block))
    for layer in drafter.layers:
        assert isinstance(layer, DraftLayer)
        attention, normed = layer.self_attn, layer.input_layernorm(x)
        rows = torch.cat((context, normed))
        q = rotate(attention.q_norm(_heads(attention.q_proj(normed))), rotation_at(places[anchor:], SHAPE))
        k = rotate(attention.k_norm(_heads(attention.k_proj(rows))), rotation_at(places, SHAPE))
        k, v = (t.repeat_interleave(2, dim=0) for t in (k, _heads(attention.v_proj(rows))))
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + attention.o_proj(mixed.transpose(0, 1).flatten(1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    rows_after_anchor: Tensor = drafter.norm(x)[1:]
    return rows_after_anchor


def _heads(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), -1, SHAPE.head_dim).transpose(0, 1)
