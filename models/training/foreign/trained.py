"""What every kind of drafter in training can be asked."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from models.training.network import RMSNorm


class Trained(nn.Module):
    """A drafter that reads features by a product, and ends with a norm."""

    fc: nn.Linear
    norm: RMSNorm

    def published(self) -> dict[str, Tensor]:
        """Return the tensors by the names of a checkpoint."""
        return self.state_dict()

    def load_published(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the tensors of a checkpoint."""
        self.load_state_dict(dict(tensors))

    def config(self, sizes: Sequence[int]) -> dict[str, object]:
        """Return config.json; `sizes` are shorter blocks that it has seen."""
        raise NotImplementedError
