"""The embedding and the head that a drafter works with: its target's, or those of its own file."""

from collections.abc import Mapping

import torch
from torch import Tensor

from services.common.kernels.linear.int8_weight import quantised
from services.common.kernels.linear.weight import Weight
from services.common.model.drafters.spec import EMBED, HEAD


class Tables:
    """Tables of a file's own, by name, as long as they differ from the target's."""

    def __init__(self, own: Mapping[str, Tensor], int8: bool, tied: bool = False) -> None:
        """With `int8` the head is a copy of eight bits. If they are `tied` the embedding is a head that is missing."""
        self._own, self._int8 = dict(own), int8
        if tied and EMBED in own:
            self._own.setdefault(HEAD, own[EMBED])

    @torch.no_grad()
    def seat(self, embed_VD: Tensor, head_VD: Tensor | None) -> tuple[Tensor, Weight]:
        """Return embedding and head for a target's tables; without `head_VD` they are one."""
        shared = {EMBED: embed_VD, HEAD: embed_VD if head_VD is None else head_VD}
        for name in [name for name, table in self._own.items() if torch.equal(table, shared[name])]:
            del self._own[name]
        tables = shared | self._own
        return tables[EMBED], quantised(tables[HEAD]) if self._int8 else tables[HEAD]
