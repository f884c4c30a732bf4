"""Chains are read by copies and judged on the host as the kernel judges them, whatever stands in a mailbox (I6)."""

import random
from types import SimpleNamespace
from typing import Any, cast

import torch

from services.common.kernels.mailbox import read_mailbox
from services.common.kernels.nodes import first_path
from services.target.device.drafted import Drafted, Path

SLOTS, WIDEST, VOCAB = 6, 8, 100
SEED = 20261130


def test_chains_are_those_that_the_kernel_reads() -> None:
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    kept = 0
    for number in range(300):
        epochs_S = torch.tensor([draw.randrange(3) for _ in range(SLOTS + 1)])
        tag_S3 = torch.tensor([[draw.choice((number, number, number - 1)), int(e), 4] for e in epochs_S])
        if draw.random() < 0.2:
            tag_S3[draw.randrange(SLOTS), draw.randrange(3)] += 1
        mailbox_SK = torch.tensor([[draw.randrange(VOCAB) for _ in range(WIDEST - 1)] for _ in range(SLOTS + 1)])
        for _ in range(draw.randrange(3)):
            mailbox_SK[draw.randrange(SLOTS), draw.randrange(WIDEST - 1)] = draw.choice((-1, VOCAB, 2**40, -(2**40)))
        slots = draw.sample(range(SLOTS), draw.randrange(1, SLOTS))
        width = draw.randrange(2, WIDEST + 1)
        settings = SimpleNamespace(buckets=(SLOTS,), widest=WIDEST)
        pool: Any = SimpleNamespace(
            mailbox_SK=mailbox_SK, tag_S3=tag_S3, device=torch.device("cpu"), settings=settings,
            model=SimpleNamespace(spec=SimpleNamespace(vocab_size=VOCAB)),
        )  # fmt: skip
        drafted = Drafted(pool, cast(Any, SimpleNamespace(gate=None)))
        plan: Any = SimpleNamespace(number=number, bucket=SLOTS, width=width, nodes=False)
        seated: Any = [(slot, SimpleNamespace(epoch=int(epochs_S[slot]))) for slot in slots]
        told = drafted.offer(plan, seated, 4, lambda mark: None, False)()
        out_BK = torch.zeros(len(slots), width - 1, dtype=torch.int64)
        expected_2, rows_B = torch.tensor([number, 4]), torch.tensor(slots, dtype=torch.int32)
        read_mailbox(mailbox_SK, tag_S3, rows_B, epochs_S, expected_2, VOCAB, out_BK)
        wanted = []
        for drafts in out_BK.tolist():
            rows = first_path([*range(width - 1)], drafts)
            wanted.append(Path(rows, [drafts[row - 1] for row in rows]))
        assert [(list(path.rows), list(path.tokens)) for path in told] == [(p.rows, p.tokens) for p in wanted]
        kept += sum(bool(path.rows) for path in told)
    assert kept > 200
