"""DFlash 2's layer: a grouped dynamic convolution over the rows of a block before and behind each sublayer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.drafter import DraftLayer
from models.training.settings import Shape


class BlockConv(nn.Module):
    """Kernels of `taps` rows: fixed ones for each column, and what rows add to them for each group of columns."""

    def __init__(self, width: int, taps: int, group: int) -> None:
        super().__init__()
        self.taps, self.group = taps, group
        # At first a row is itself.
        first = (torch.arange(taps) == 0).float()
        self.base_kernel = nn.Parameter(first[None, :, None].repeat(2, 1, width))
        self.kernel_projection = nn.Linear(width, 2 * taps * width // group, bias=False)
        nn.init.zeros_(self.kernel_projection.weight)

    def entering(self, x: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows [batch, rows, width] that enter the sublayer, and the kernels behind it."""
        before, behind = self.kernel_projection(x).unflatten(-1, (2, self.taps, -1)).unbind(2)
        return self._mix(x, before, self.base_kernel[0], offsets), behind

    def leaving(self, x: Tensor, kernels: Tensor, offsets: Tensor) -> Tensor:
        """Return what a sublayer adds to the stream."""
        return self._mix(x, kernels, self.base_kernel[1], offsets)

    def _mix(self, x: Tensor, kernels: Tensor, base: Tensor, offsets: Tensor) -> Tensor:
        """Sum rows before, each by its kernel; `offsets` [rows] are places in blocks, where rows before end."""
        mixed = torch.zeros_like(x)
        for tap in range(self.taps):
            shifted = F.pad(x, (0, 0, tap, 0))[:, : x.shape[1]] * (offsets >= tap)[:, None]
            kernel = base[tap] + kernels[:, :, tap].repeat_interleave(self.group, dim=-1)
            mixed = mixed + kernel.to(x.dtype) * shifted
        return mixed


class ConvLayer(DraftLayer):
    """A drafter's layer with both convolutions."""

    def __init__(self, shape: Shape, taps: int, group: int) -> None:
        super().__init__(shape)
        self.attention_conv = BlockConv(shape.hidden_size, taps, group)
        self.mlp_conv = BlockConv(shape.hidden_size, taps, group)
