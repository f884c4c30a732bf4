"""Where the oracle tests run: on the GPU, or on the CPU under TRITON_INTERPRET=1."""

import os

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
WARM_S = 150.0
"""A pair's first start on a machine compiles every kernel."""
DTYPES = (torch.float32,) if INTERPRETED else (torch.float32, torch.bfloat16)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the same normal numbers on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def close(got: Tensor, expected: Tensor) -> None:
    """Compare at the precision of the type."""
    loose = expected.dtype == torch.bfloat16
    torch.testing.assert_close(
        got.cpu(), expected.cpu(), atol=3e-2 if loose else 2e-5, rtol=2e-2 if loose else 1e-4, equal_nan=True
    )


def near(got: Tensor, expected: Tensor) -> None:
    """Compare with a wider reference: in float32 number by number, in bfloat16, which rounds in between, as a whole."""
    if got.dtype == torch.float32:
        close(got, expected.float())
        return
    wide, true = got.double().cpu(), expected.double().cpu()
    error = float((wide - true).norm() / true.norm())
    assert error < 1e-2, f"{error} of the norm"
