"""Every kind of chain by kernels against a plain implementation of its own: context, states and drafts."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import plan_context, plan_span
from services.common.model import load_chain, load_target
from services.common.model.drafters import chain
from services.common.model.drafters.chain_context import ChainContext
from services.common.model.drafters.context import open_context
from services.common.model.states.draft_context import Chained
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Part, Rows
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED
from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import TinyPair, TinyShape
from tests.unit.common.model.pairs import BLOCK_SIZE, ids_like, poisoned, tables
from tests.unit.common.model.plain_chains import PLAIN_CHAINS, PlainChain

SHAPE = TinyShape(vocab=270, hidden=32, inner=32, heads=2, kv_heads=1, tied=False)
LENGTHS, COUNT, BLOCKS = [5, 9, 1], 2, 40
QUICK = ("eagle3-speculators", "mtp")
KINDS = QUICK if INTERPRETED else tuple(sorted(CHAINS))
"""The interpreter runs the most different ones."""


def pair_of(kind: str, folder: Path) -> TinyPair:
    """Recurrent heads of a hybrid have sizes for which there are kernels."""
    if kind == "mtp":
        return CHAINS[kind](folder, 3, SHAPE, changes={"linear_key_head_dim": 16, "linear_value_head_dim": 16})
    return CHAINS[kind](folder, 3, SHAPE)


class Written:
    """A pair, texts, the context of all but their last tokens, and a slot without a text."""

    def __init__(self, pair: TinyPair, dtype: torch.dtype, device: str = DEVICE) -> None:
        self.device = device
        self.target = load_target(pair.target, dtype, device)
        self.chain = load_chain(pair.drafter, dtype, device)
        context = open_context(pair.drafter, self.target)
        assert isinstance(context, ChainContext)
        self.context, self.table = context, tables([4, 8, 6, 0], 10).to(device)
        self.texts = [ids_like(1, length + 1, vocab=SHAPE.vocab, seed=row)[0] for row, length in enumerate(LENGTHS)]
        draw = torch.Generator().manual_seed(7)
        width = SHAPE.hidden * len(context.taps)
        self.features = [torch.randn(length, width, generator=draw).to(dtype) for length in LENGTHS]
        self.seeds = Seeds(BLOCKS, BLOCK_SIZE, poisoned(torch.empty(5, SHAPE.hidden, dtype=dtype, device=device)))
        self.kv = poisoned(torch.empty(context.kv_shape(BLOCKS, BLOCK_SIZE), dtype=dtype, device=device))
        for row, length in enumerate(LENGTHS):
            self.seeds.begin(row, None)
            for start, end in ((0, length // 2), (length // 2, length)):
                self._write(row, start, end)

    def _write(self, row: int, start: int, end: int) -> None:
        """Rows of a text, and one that is rejected."""
        if start == end:
            return
        length_1 = torch.tensor([start], device=self.device)
        span = plan_span(self.table[row : row + 1], length_1, end - start + 1, BLOCK_SIZE)
        slot_1 = torch.tensor([row], dtype=torch.int32, device=self.device)
        ids_T = torch.cat((self.texts[row][start:end], torch.tensor([7]))).to(self.device)
        features_TF = torch.cat((self.features[row][start:end], torch.ones_like(self.features[row][:1]))).to(
            self.device
        )
        states_TD = self.context.write(features_TF, Rows(Part(span, slot_1)), self.kv, Chained(ids_T, self.seeds))
        self.seeds.commit(states_TD, slot_1, torch.tensor([end - start], device=self.device))

    def propose(self, count: int = COUNT) -> list[list[int]]:
        """Drafts of the texts; the last row is padding, whose slot holds nothing."""
        lengths_B = torch.tensor([*LENGTHS, 0], device=self.device)
        span = plan_context(self.table, lengths_B, count, BLOCK_SIZE)
        seated = self.chain.seat(self.target.embed_VD, self.target.lm_head_VD)
        anchor_B = torch.tensor([*(int(text[-1]) for text in self.texts), 0], device=self.device)
        seed_BD = torch.cat((self.seeds.slot_SD[: len(LENGTHS)], torch.zeros_like(self.seeds.slot_SD[:1])))
        drafts: list[list[int]] = self.chain.propose(anchor_B, seed_BD, span, self.kv, *seated).tolist()
        return drafts


def errors_of(written: Written, plain: PlainChain, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How far hidden states of drafts are from plain ones, as shares of their norms; padding drafts tokens, too.

    Narrow numbers may choose another one of two alike: what follows is another text.
    """
    seen, choose = list[Tensor](), chain._best

    def noted(hidden_BD: Tensor, *rest: object) -> Tensor:
        seen.append(hidden_BD)
        return choose(hidden_BD, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(chain, "_best", noted)
        got = written.propose()
    embed_VD, head_VD = (table.double().cpu() for table in (written.target.embed_VD, written.target.lm_head_VD))
    errors = []
    for row, text in enumerate(written.texts):
        drafts, hidden = plain.drafts(text.tolist(), written.features[row].double(), embed_VD, head_VD, COUNT)
        for step, wanted_D in enumerate(hidden):
            errors.append(float((seen[step][row].double().cpu() - wanted_D).norm() / wanted_D.norm()))
            if got[row][step] != drafts[step]:
                break
    assert all(0 <= token < SHAPE.vocab for token in got[-1])
    assert seen[0].dtype != torch.float32 or len(errors) == COUNT * len(LENGTHS), "drafts are the plain ones"
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_equal_the_plain_implementation(
    kind: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16 they round no more than the CPU's reference does in that type."""
    pair = pair_of(kind, tmp_path)
    plain = PLAIN_CHAINS[kind.partition("-")[0]](pair.drafter, torch.float64)
    worst = max(errors_of(Written(pair, dtype), plain, monkeypatch))
    if dtype == torch.float32:
        assert worst < 2e-5
    else:
        assert worst < 1.5 * max(errors_of(Written(pair, dtype, "cpu"), plain, monkeypatch))


@pytest.mark.parametrize("kind", QUICK[:1] if INTERPRETED else QUICK)
def test_a_row_drafts_alike_in_any_company_and_number(kind: str, tmp_path: Path) -> None:
    written = Written(pair_of(kind, tmp_path), DTYPES[-1])
    whole = written.propose()
    assert [drafts[:1] for drafts in whole] == written.propose(1)
    alone = plan_context(written.table[1:2], torch.tensor(LENGTHS[1:2], device=DEVICE), COUNT, BLOCK_SIZE)
    seated = written.chain.seat(written.target.embed_VD, written.target.lm_head_VD)
    anchor_1 = written.texts[1][-1:].to(DEVICE)
    got = written.chain.propose(anchor_1, written.seeds.slot_SD[1:2], alone, written.kv, *seated)
    assert got.tolist() == whole[1:2]
