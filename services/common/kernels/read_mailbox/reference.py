"""Mailbox copy in NumPy over the tensors' memory: at a few rows an order of magnitude quicker than torch."""

from torch import Tensor


def read_mailbox(
    tokens_SK: Tensor, tags_S3: Tensor, rows_B: Tensor, epochs_S: Tensor, expected_2: Tensor, vocab: int, out_BK: Tensor
) -> Tensor:
    """Copy the drafts of every row's slot; rows with a foreign tag or an id out of range become -1."""
    rows, out = rows_B.numpy(), out_BK.numpy()
    tags = tags_S3.numpy()[rows]
    out[:] = tokens_SK.numpy()[rows, : out.shape[1]]
    round_number, generation = expected_2.tolist()
    usable = (tags[:, 0] == round_number) & (tags[:, 1] == epochs_S.numpy()[rows]) & (tags[:, 2] == generation)
    usable &= ((out >= 0) & (out < vocab)).all(1)
    out[~usable] = -1
    return out_BK
