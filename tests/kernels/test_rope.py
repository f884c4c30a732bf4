"""Frequencies and tables against transformers, to the bit in float32; in float64 against the formula."""

from typing import Any

import pytest
import torch

from services.common.kernels.rope import Frequencies, Llama3, RotationTable, Scaling, Yarn
from services.common.kernels.rope.frequencies import attention_factor

ORIGINAL, HEAD_DIM, THETA = 32_768, 64, 1e6
PLACES = torch.tensor([0, 1, 63, 32_767, 32_768, 99_999, 131_071])
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": ORIGINAL}  # fmt: skip
SCALINGS: dict[str, tuple[dict[str, Any], Scaling | None]] = {
    "default": ({"rope_type": "default"}, None),
    "yarn": (YARN, Yarn(4.0, ORIGINAL, attention_factor(4.0))),
    "yarn, attention factor": (YARN | {"attention_factor": 0.7}, Yarn(4.0, ORIGINAL, 0.7)),
    "yarn, betas": (
        YARN | {"beta_fast": 8.0, "beta_slow": 2.0}, Yarn(4.0, ORIGINAL, attention_factor(4.0), 8.0, 2.0)
    ),
    "yarn, not truncated": (
        YARN | {"truncate": False}, Yarn(4.0, ORIGINAL, attention_factor(4.0), truncate=False)
    ),
    "yarn, mscale": (
        YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}, Yarn(4.0, ORIGINAL, attention_factor(4.0, 0.7, 1.3))
    ),
    "llama3": (LLAMA3, Llama3(8.0, ORIGINAL, 1.0, 4.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_are_those_of_transformers(name: str) -> None:
    parameters, scaling = SCALINGS[name]
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    config = Qwen3Config(
        hidden_size=128, num_attention_heads=2, head_dim=HEAD_DIM, max_position_embeddings=4 * ORIGINAL,
        rope_parameters=parameters | {"rope_theta": THETA},
    )  # fmt: skip
    theirs = Qwen3RotaryEmbedding(config)
    frequencies = Frequencies.of(HEAD_DIM, THETA, scaling)
    assert torch.equal(frequencies.turns_H, theirs.inv_freq)
    rotation = RotationTable(4 * ORIGINAL, frequencies, torch.float32, "cpu").at(PLACES)
    cos, sin = theirs(torch.zeros(1), PLACES[None])
    half = HEAD_DIM // 2
    torch.testing.assert_close(rotation.cos_T1D[:, 0], cos[0], atol=2e-7, rtol=0)
    torch.testing.assert_close(rotation.sin_T1D[:, 0, half:], sin[0, :, half:], atol=2e-7, rtol=0)
    assert torch.equal(rotation.sin_T1D[..., :half], -rotation.sin_T1D[..., half:])


def test_a_wider_type_is_computed_in_it() -> None:
    rotation = RotationTable(9, Frequencies.of(8, 1e4, dtype=torch.float64), torch.float64, "cpu").at(torch.tensor([7]))
    angles = 7 * 1e4 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    torch.testing.assert_close(rotation.cos_T1D[0, 0, :4], angles.cos(), atol=1e-14, rtol=0)
