"""A kind of drafter that nobody publishes: DFlash whose rows are scored backwards. All that the product asks of a kind
is here, in one file; `test_kind_added` puts its folder beside the real ones.
"""

import torch
from torch import Tensor

from services.common.kernels.linear.weight import Weight
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.dflash import head_shapes as head_shapes
from services.common.model.drafters.dflash import read_spec as read_spec
from services.common.model.drafters.dflash import read_stack as read_stack
from services.common.model.drafters.heads import ArgmaxHead
from services.common.model.drafters.nodes import Candidates
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.drafters.vocabulary import read_vocabulary
from services.common.model.files.checkpoint import IntegerSource

ARCHITECTURES = ("MirrorDraftModel",)
REFUSED = {"MirrorTwiceDraftModel": "two mirrors are not supported: take one of MirrorDraftModel"}


class MirrorHead(ArgmaxHead):
    """The worst token of each row."""

    def choose(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Tensor:
        """Return tokens [B, K]."""
        return super().choose(-hidden_BKD, head, anchor_B, coupling)

    def rank(self, hidden_BKD: Tensor, head: Weight, anchor_B: Tensor, coupling: Coupling | None) -> Candidates:
        """Return the worst tokens."""
        return super().rank(-hidden_BKD, head, anchor_B, coupling)


def read_head(spec: DrafterSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> MirrorHead:
    """Read which tokens the head scores."""
    return MirrorHead(spec, read_vocabulary(spec, checkpoint, device))
