"""The last step of a draft: writes tokens to the shared mailbox, then their tags."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.write_mailbox import reference


def write_mailbox(
    drafts_BK: Tensor, rows_B: Tensor, epochs_S: Tensor, stamp_2: Tensor, tokens_SK: Tensor, tags_S3: Tensor
) -> None:
    """Write the drafts of every row's slot, then (round, the slot's epoch, generation).

    `stamp_2` holds (round, generation); `drafts_BK` may be narrower than the mailbox.
    """
    if on_kernel(tokens_SK):
        from services.common.kernels.write_mailbox import kernel

        kernel.write_mailbox(drafts_BK, rows_B, epochs_S, stamp_2, tokens_SK, tags_S3)
    else:
        reference.write_mailbox(drafts_BK, rows_B, epochs_S, stamp_2, tokens_SK, tags_S3)
