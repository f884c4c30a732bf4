"""Later kinds of drafters against numbers of published code: speculators 0.9.0, transformers 5.23, torch 2.13, seed 68.

Each folder of `published_kinds` has a drafter with random weights as that library writes it, features drawn at random,
and what its own classes made of them, in float64: `_backbone_forward`, the selector's `select`, the heads of DSpark,
EAGLE-3's unrolled `forward`, and the MTP layer over growing rows. What transformers computes in float32 inside (norms,
rotations, softmax) was computed in float64 too. EAGLE-3's target ids are those of its `d2t`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from services.common.kernels.span_attention import plan_context
from services.common.model import load_block, load_chain, load_target
from services.common.model.drafters import chain
from services.common.model.drafters.block import DraftBlock
from services.common.model.drafters.context import load_context, open_context
from services.common.model.drafters.heads import scaled_logits
from services.common.model.states.draft_context import Chained
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Part, Rows
from tests.unit.common.model.pairs import BLOCK_SIZE, block_ids, context_at, context_kv, poisoned, span_at, tables

HERE = Path(__file__).parent
FOLDER, TARGET = HERE / "published_kinds", HERE / "published" / "target"
LENGTHS = (5, 23)
BLOCKS, CHAINS = ("dflash", "dflash2", "dspark"), ("eagle3-llama", "eagle3-output", "eagle3-qwen3", "mtp")
CLOSE: dict[str, Any] = {"atol": 1e-11, "rtol": 1e-9}
COLUMNS = 10


def expected(kind: str, length: int) -> dict[str, Tensor]:
    told = load_file(FOLDER / kind / "expected.safetensors")
    start = f"{length}."
    return {name.removeprefix(start): one for name, one in told.items() if name == "embed" or name.startswith(start)}


def test_every_folder_is_tried() -> None:
    assert {one.name for one in FOLDER.iterdir()} == {*BLOCKS, *CHAINS}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_those_of_the_published_code(kind: str, length: int) -> None:
    told, target = expected(kind, length), load_target(TARGET, torch.float64)
    context, block = load_context(FOLDER / kind, target), load_block(FOLDER / kind, torch.float64, confident=True)
    table, kv = tables([COLUMNS], COLUMNS), context_kv(context)
    context.write(told["features"], span_at(table, [0], length), kv)
    ids, rows = block_ids(block, told["anchor"][None]), context_at(table, [length], block.spec.block_size)
    embed_VD = told["embed"].double()
    hidden_BWD = block.hidden(ids, rows, kv, embed_VD)
    torch.testing.assert_close(hidden_BWD[0], told["hidden"], **CLOSE)
    drafts = block.propose(ids, rows, kv, *block.seat(embed_VD, None))[0]
    assert drafts.tolist() == told["drafts"].tolist()
    torch.testing.assert_close(_scores(kind, block, hidden_BWD, told), told["scores"], **CLOSE)


def _scores(kind: str, block: DraftBlock, hidden_BWD: Tensor, told: dict[str, Tensor]) -> Tensor:
    """What each row's drafts were chosen by, behind the tokens that the published code chose."""
    head, first, drafts = block._head, block.spec.first_row, told["drafts"]
    table, rows_KD = told["embed"].double(), hidden_BWD[0, first:]
    before = [int(told["anchor"]), *drafts.tolist()[:-1]]
    weights = {name: one.double() for name, one in load_file(FOLDER / kind / "model.safetensors").items()}
    logits_KV = scaled_logits(rows_KD, table, block.spec)
    if kind == "dflash":
        return logits_KV
    if kind == "dspark":
        ranked = head.rank(hidden_BWD[:, first:], table, told["anchor"][None], None)
        chances_K = ranked.scores_BKPC[0, :, 0].exp().sum(-1)
        torch.testing.assert_close(chances_K, told["confidence"], **CLOSE)
        first_VR, second_VR = (weights[f"markov_head.markov_w{index}.weight"] for index in (1, 2))
        biased_KV: Tensor = logits_KV + first_VR[before] @ second_VR.T
        return biased_KV
    ranked = head.rank(hidden_BWD[:, first:], table, told["anchor"][None], None)
    ids_KC, chosen = ranked.ids_BKC[0], torch.tensor(before)
    place = [0, *(int((ids_KC[row - 1] == chosen[row]).nonzero()) for row in range(1, len(drafts)))]
    shares = torch.stack([ranked.scores_BKPC[0, row, place[row]] for row in range(len(drafts))])
    torch.testing.assert_close(shares, told["scores"].log_softmax(-1), **CLOSE)
    context_KR = weights["candidate_selector.predecessor_codebook"][chosen]
    context_KR = context_KR * (rows_KD @ weights["candidate_selector.hidden_projection.weight"].T)
    after_KCR = weights["candidate_selector.successor_codebook"][ids_KC]
    scores_KC: Tensor = logits_KV.gather(1, ids_KC) + (after_KCR @ context_KR[:, :, None])[..., 0]
    return scores_KC


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", CHAINS)
def test_chains_are_those_of_the_published_code(kind: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = FOLDER / kind
    told, target = expected(kind, length), load_target(own if kind == "mtp" else TARGET, torch.float64)
    context, drafter = open_context(own, target), load_chain(own, torch.float64)
    table, slot = tables([COLUMNS], COLUMNS), torch.tensor([0])
    rows = Rows(Part(span_at(table, [0], length).parts[0].span, slot))
    kv = poisoned(torch.empty(context.kv_shape(40, BLOCK_SIZE), dtype=torch.float64))
    seeds = Seeds(40, BLOCK_SIZE, torch.full((2, context.seed_width), float("nan"), dtype=torch.float64))
    seeds.begin(0, None)
    # EAGLE-3's context is made with the embedding that it drafts with.
    if kind != "mtp":
        monkeypatch.setattr(context, "_embed_VD", told["embed"].double())
    states_TD = context.write(told["features"], rows, kv, Chained(told["ids"][:-1], seeds))
    assert states_TD is not None
    seeds.commit(states_TD, slot, torch.tensor([length]))
    drafts, count = told["drafts"].tolist(), len(told["drafts"])
    span = plan_context(table, torch.tensor([length]), count, BLOCK_SIZE)
    tables_of = (target.embed_VD, target.lm_head_VD) if kind == "mtp" else (told["embed"].double(), None)
    found = _noted(monkeypatch)
    got = drafter.propose(told["ids"][-1:], seeds.slot_SD[:1], span, kv, *drafter.seat(*tables_of))
    assert got[0].tolist() == drafts
    torch.testing.assert_close(torch.cat(found), told["hidden"], **CLOSE)


def _noted(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return a list that each step's row, as the head scores it, is put into."""
    found, best = list[Tensor](), chain._best

    def noted(hidden_BD: Tensor, *rest: Any) -> Tensor:
        found.append(hidden_BD)
        return best(hidden_BD, *rest)

    monkeypatch.setattr(chain, "_best", noted)
    return found
