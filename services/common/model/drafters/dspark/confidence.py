"""A head that says of a row, and of the token before, how likely it is that what the row scores best is right."""

import torch
from torch import Tensor
from torch.nn import functional as F


class Confidence:
    """A sigmoid of a product with the row's hidden state and, where it was trained so, the code of the token before."""

    def __init__(self, weight_F: Tensor, bias_1: Tensor, width: int) -> None:
        """`weight_F` has the `width` of hidden states first. Sums are of float32 or wider."""
        wide = torch.promote_types(weight_F.dtype, torch.float32)
        self._hidden_D, self._bias_1 = weight_F[:width].to(wide), bias_1.to(wide)
        self._before_R = weight_F[width:].to(wide) if len(weight_F) > width else None

    def log_chances(self, hidden_BD: Tensor, before_BPR: Tensor) -> Tensor:
        """Return the logarithms of the chances behind each of some tokens [B, P]."""
        told_BP = (hidden_BD.to(self._hidden_D.dtype) @ self._hidden_D)[:, None] + self._bias_1
        if self._before_R is not None:
            told_BP = told_BP + before_BPR.to(self._hidden_D.dtype) @ self._before_R
        return F.logsigmoid(told_BP.expand(before_BPR.shape[:2]))
