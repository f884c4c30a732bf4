"""The last step of a draft: writes tokens to the shared mailbox, then their tags."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.write_mailbox import reference


def write_mailbox(
    drafts_BK: Tensor, rows_B: Tensor, epochs_S: Tensor, stamp_2: Tensor, tokens_SK: Tensor, tags_S3: Tensor,
    parents_BK: Tensor | None = None, parents_SK: Tensor | None = None,
) -> None:  # fmt: skip
    """Write the drafts of every row's slot, and their parents where they are trees; then (round, epoch, generation).

    `stamp_2` holds (round, generation), the epoch is the slot's; `drafts_BK` may be narrower than the mailbox.
    """
    if on_kernel(tokens_SK):
        from services.common.kernels.write_mailbox import kernel

        kernel.write_mailbox(drafts_BK, rows_B, epochs_S, stamp_2, tokens_SK, tags_S3, parents_BK, parents_SK)
    else:
        reference.write_mailbox(drafts_BK, rows_B, epochs_S, stamp_2, tokens_SK, tags_S3, parents_BK, parents_SK)
