"""The first step of verify: copies drafts from the shared mailbox to private memory, and marks wrong ones absent."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.read_mailbox import reference

ABSENT = -1


def read_mailbox(
    tokens_SK: Tensor, tags_S3: Tensor, rows_B: Tensor, epochs_S: Tensor, expected_2: Tensor, vocab: int, out_BK: Tensor
) -> Tensor:
    """Copy the drafts of every row's slot into `out_BK`, and check the copy alone (invariant I6).

    A row is kept when its tag equals (round, the slot's epoch, generation) and all its ids are in range; otherwise it
    becomes -1. `expected_2` holds (round, generation); `out_BK` may be narrower than the mailbox.
    """
    if on_kernel(tokens_SK):
        from services.common.kernels.read_mailbox import kernel

        return kernel.read_mailbox(tokens_SK, tags_S3, rows_B, epochs_S, expected_2, vocab, out_BK)
    return reference.read_mailbox(tokens_SK, tags_S3, rows_B, epochs_S, expected_2, vocab, out_BK)
