"""TorchScript makes the same of a class that it has read before as of one that it reads."""

from typing import Final

import torch
import torch.jit._recursive
from torch import Tensor, nn

from services.common.kernels.torchscript import compiled
from tests.support.quick_script import install


class Part(nn.Module):
    """A product by a constant and a weight, with a method beside the one that is called."""

    times: Final[float]

    def __init__(self, times: float, size: int) -> None:
        super().__init__()
        self.times, self.weight_D = times, torch.ones(size)

    def forward(self, rows_TD: Tensor) -> Tensor:
        return rows_TD * self.weight_D * self.times

    @torch.jit.export
    def twice(self, rows_TD: Tensor) -> Tensor:
        return self.forward(self.forward(rows_TD))


class Other(Part):
    """One whose call is its own."""

    def forward(self, rows_TD: Tensor) -> Tensor:
        return rows_TD - self.times


def test_every_module_of_a_class_is_compiled_with_its_own_numbers() -> None:
    install()
    for part in (Part(2.0, 3), Part(3.0, 3), Part(2.0, 5), Other(2.0, 3), nn.Sequential(Part(4.0, 3), Other(1.0, 3))):
        rows_TD = torch.arange(part.weight_D.numel() if isinstance(part, Part) else 3).float()[None]
        script = compiled(part)
        assert isinstance(script, torch.jit.ScriptModule)
        assert torch.equal(script(rows_TD), part(rows_TD))
        if isinstance(part, Part):
            assert torch.equal(script.twice(rows_TD), part.twice(rows_TD))


def test_it_takes_the_place_of_what_it_keeps_once() -> None:
    install()
    before = torch.jit._recursive.infer_methods_to_compile
    install()
    assert torch.jit._recursive.infer_methods_to_compile is before
