"""References with a bias, without head norms and with zero-centred norms, against transformers."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed
from services.common.kernels.rms_norm.reference import rms_norm
from services.common.kernels.rope import Frequencies, Rotation, RotationTable
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.store_qkv.reference import project_qkv

ROWS, HEADS, KV_HEADS, SIZE, WIDTH, EPS = 5, 4, 2, 8, 24, 1e-6
LINES = (HEADS + 2 * KV_HEADS) * SIZE


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rotation() -> Rotation:
    return RotationTable(9, Frequencies.of(SIZE, 1e4), torch.float32, "cpu").at(torch.arange(ROWS) + 3)


@pytest.mark.parametrize("bias_F", [None, randn(LINES, seed=2)], ids=["llama", "qwen2"])
def test_heads_without_norms_are_those_of_transformers(bias_F: Tensor | None) -> None:
    x_TD, weight_FD, turn = randn(ROWS, WIDTH, seed=0), randn(LINES, WIDTH, seed=1), rotation()
    kv_2NSHD, slots_T = torch.zeros(2, 3, 4, KV_HEADS, SIZE), torch.tensor([9, 2, 4, 11, 5])
    q_THD = project_qkv(Normed(x_TD), weight_FD, None, turn, kv_2NSHD, slots_T, EPS, bias_F)
    mixed_HTD = torch.nn.functional.linear(x_TD, weight_FD, bias_F).view(ROWS, -1, SIZE).transpose(0, 1)
    turning = HEADS + KV_HEADS
    cos_TD, half = turn.cos_T1D[:, 0], SIZE // 2
    sin_TD = turn.sin_T1D[:, 0, half:].repeat(1, 2)
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q_1HTD, k_1HTD = apply_rotary_pos_emb(
        mixed_HTD[None, :HEADS], mixed_HTD[None, HEADS:turning], cos_TD[None], sin_TD[None]
    )
    torch.testing.assert_close(q_THD, q_1HTD[0].transpose(0, 1), atol=1e-5, rtol=0)
    stored_2THD = kv_2NSHD.flatten(1, 2)[:, slots_T]
    torch.testing.assert_close(stored_2THD[0], k_1HTD[0].transpose(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(stored_2THD[1], mixed_HTD[turning:].transpose(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_zero_centred_norm_is_that_of_transformers(dtype: torch.dtype) -> None:
    """In bfloat16 too, where a weight stored with the one added would lose digits."""
    x_TD, weight_D = randn(ROWS, WIDTH, seed=0).to(dtype), (0.01 * randn(WIDTH, seed=1)).to(dtype)
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

    theirs = GemmaRMSNorm(WIDTH, EPS).to(dtype)
    theirs.weight.data = weight_D
    torch.testing.assert_close(rms_norm(x_TD, weight_D, EPS, 1.0), theirs(x_TD), atol=1e-6, rtol=1e-6)


def test_zero_centred_head_norms_are_norms_of_the_whole_weight() -> None:
    x_THD, weight_HD = randn(ROWS, HEADS, SIZE, seed=0), 0.1 * randn(HEADS, SIZE, seed=1)
    got_THD = norm_rope(x_THD, weight_HD, rotation(), EPS, 1.0)
    assert torch.equal(got_THD, norm_rope(x_THD, weight_HD + 1.0, rotation(), EPS))


def test_a_bias_of_zeros_changes_no_bit() -> None:
    x_TD, weight_FD = randn(ROWS, WIDTH, seed=0), randn(LINES, WIDTH, seed=1)
    norm_HD, slots_T = randn(HEADS + KV_HEADS, SIZE, seed=3), torch.arange(ROWS)
    results = []
    for bias_F in (None, torch.zeros(LINES)):
        kv_2NSHD = torch.zeros(2, 3, 4, KV_HEADS, SIZE)
        q_THD = project_qkv(Normed(x_TD), weight_FD, norm_HD, rotation(), kv_2NSHD, slots_T, EPS, bias_F)
        results.append((q_THD, kv_2NSHD))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
