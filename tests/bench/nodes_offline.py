"""Offline count of trees of drafts: `python -m tests.bench.nodes_offline --pair embedded`; --table prints a saved one.

The text depends on the target alone. So it is written once by plain decoding, the product's drafter is asked at every
anchor, and rounds are replayed over the text: at the same number of rows as a chain of drafts, and as a tree.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from deploy.shipped import SMOLLM2, SMOLLM2_DRAFTER
from deploy.stack import EMBEDDED, REPOSITORY
from models.training.foreign.conversation import read_format
from models.training.foreign.heldout import read_prompts
from services.common.device.noise import gumbel
from services.common.kernels.prepare_span import seat_block
from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_block, load_target
from services.common.model.drafters.block import DraftBlock
from services.common.model.drafters.context import BlockContext, load_context
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.states.states import Part, Rows
from services.common.request.sampling import SamplingParams, StopParams
from services.target.core.request import RequestSpec
from tests.bench.tree_count import Ranked, chain_accepts, rounds_of, tree_accepts
from tests.lossless.rig import Rig, RigSettings

ROWS, CANDIDATES, TEMPERATURES = (4, 8, 16), (2, 4, 8, 16), (0.0, 0.8)
SEED = 65
BLOCK, _SLOTS, _LIMIT = 16, 16, 512
_AT_ONCE = 16
"""Anchors whose blocks are computed at a time."""
SIZES = {"embedded": (16, 96), "embedded-hybrid": (16, 96), SMOLLM2: (12, 64)}
"""Prompts of each pair, and the most tokens of an answer: four minutes of one core in all."""


@dataclass(frozen=True)
class Pair:
    """A target, its drafter, and tokens of prompts to answer."""

    name: str
    target: Path
    drafter: Path
    prompts: list[list[int]]


@dataclass(frozen=True)
class Text:
    """A prompt with what the target wrote behind it, and the parameters of its draws."""

    ids: list[int]
    start: int
    sampling: SamplingParams


@dataclass(frozen=True)
class Line:
    """Tokens a round at one number of rows; `tree` by how many candidates each position has.

    At a temperature above 0 drafts are `coupled` to the target's noise, as served, or are the drafter's likeliest.
    """

    pair: str
    temperature: float
    coupled: bool
    rows: int
    texts: int
    tokens: int
    chain: float
    tree: dict[str, float]


def read_pair(name: str, prompts: int) -> Pair:
    """One of SIZES with so many held-out prompts; SmolLM2's are of every kind alike."""
    if name != SMOLLM2:
        held_out = json.loads((EMBEDDED / "heldout_prompts.json").read_text("utf-8"))[:prompts]
        folder = REPOSITORY / "models" / name
        return Pair(name, folder / "target", folder / "drafter", tokens_of(folder / "target", held_out))
    asked = read_prompts(SMOLLM2_DRAFTER / "heldout_prompts.json")
    kinds = list(dict.fromkeys(one.kind for one in asked))
    turns = zip(*([one.prompt for one in asked if one.kind == kind] for kind in kinds), strict=False)
    questions = [prompt for turn in turns for prompt in turn][:prompts]
    folder = resolve_folder(SMOLLM2)
    return Pair(SMOLLM2, folder, SMOLLM2_DRAFTER, read_format(folder).prompts(questions))


def tokens_of(folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of texts that go on."""
    return [encoding.ids for encoding in Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(list(texts))]


def main() -> int:
    """Counts one pair and adds it to a file, or prints a file as a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodes_offline")
    parser.add_argument("--pair", choices=SIZES, default="embedded")
    parser.add_argument("--save", type=Path, help="JSON file whose lines of this pair are replaced")
    parser.add_argument("--table", type=Path, help="count nothing, and print the lines of this file")
    asked = parser.parse_args()
    if asked.table is not None:
        print(table([Line(**line) for line in json.loads(asked.table.read_text("utf-8"))["lines"]]))
        return 0
    torch.set_num_threads(1)
    prompts, tokens = SIZES[asked.pair]
    counted = [asdict(line) for line in count(read_pair(asked.pair, prompts), tokens)]
    if asked.save is not None:
        save(asked.save, asked.pair, counted)
    print(json.dumps(counted))
    return 0


def save(path: Path, pair: str, counted: list[dict[str, object]]) -> None:
    """Put the lines of a pair in place of older ones."""
    kept = json.loads(path.read_text("utf-8"))["lines"] if path.exists() else []
    document = {"bench": "nodes_offline", "lines": [line for line in kept if line["pair"] != pair] + counted}
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def table(counted: Sequence[Line]) -> str:
    """Return the lines as Markdown; a tree's gain is over the chain of as many rows."""
    head = ["pair", "T", "drafts", "rows", "chain", *(f"tree, {most} candidates" for most in CANDIDATES), "gain at 8"]
    rows = [head, ["---"] * len(head)]
    for line in counted:
        drafts = "coupled" if line.coupled else "likeliest"
        taus = [f"{line.tree[str(most)]:.2f}" for most in CANDIDATES]
        gain = f"{line.tree['8'] / line.chain - 1:+.0%}"
        rows.append([line.pair, f"{line.temperature:g}", drafts, str(line.rows), f"{line.chain:.2f}", *taus, gain])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def count(pair: Pair, tokens: int) -> Iterator[Line]:
    """Yield the lines of a pair, at most `tokens` of each answer."""
    for temperature in TEMPERATURES:
        texts = write(pair, temperature, tokens)
        asked = Asked(pair)
        couplings = (True, False) if temperature else (False,)
        for coupled in couplings:
            ranked = [asked.ranked(text, coupled) for text in texts]
            yield from lines(pair.name, temperature, coupled, texts, ranked)


def lines(
    name: str, temperature: float, coupled: bool, texts: Sequence[Text], ranked: Sequence[list[Ranked]]
) -> Iterator[Line]:
    """Replay rounds over all texts together, by number of rows."""
    written = sum(len(text.ids) - text.start - 1 for text in texts)
    truths = [text.ids[text.start + 1 :] for text in texts]
    for rows in ROWS:
        chain = sum(map(partial(rounds_of, accepts=partial(chain_accepts, rows=rows)), ranked, truths))
        trees = {
            str(most): sum(
                map(partial(rounds_of, accepts=partial(tree_accepts, rows=rows, candidates=most)), ranked, truths)
            )
            for most in CANDIDATES
        }
        taus = {most: round(written / rounds, 3) for most, rounds in trees.items()}
        yield Line(name, temperature, coupled, rows, len(texts), written, round(written / chain, 3), taus)


def write(pair: Pair, temperature: float, tokens: int) -> list[Text]:
    """Let the target answer every prompt by plain decoding; an answer ends before the end of a text."""
    sizes = RigSettings(slots=_SLOTS, buckets=(1, 2, 4, 8, _SLOTS), context_limit=_LIMIT, blocks=_SLOTS * _LIMIT // 16)
    with Rig(pair.target, None, sizes) as rig:
        specs = [
            RequestSpec(
                f"t{index}",
                tuple(ids),
                len(ids),
                SamplingParams(temperature=temperature, seed=SEED + index),
                StopParams(max_tokens=tokens, stop_token_ids=tuple(rig.model.spec.eos_token_ids)),
            )
            for index, ids in enumerate(pair.prompts)
        ]
        return [
            Text([*spec.token_ids, *done.tokens], len(spec.token_ids), spec.sampling)
            for spec, done in zip(specs, rig.run(specs), strict=True)
        ]


class Asked:
    """The product's drafter over the product's target, asked at every anchor of a text."""

    def __init__(self, pair: Pair, int8: bool = False, confident: bool = False) -> None:
        """With `int8` the drafter has weights of eight bits, and with `confident` its own confidence counts."""
        self._target: Target = load_target(pair.target)
        self._context: BlockContext = load_context(pair.drafter, self._target)
        self._block: DraftBlock = load_block(pair.drafter, int8=int8, confident=confident)
        self._block.reach(_LIMIT)
        self._tables = self._block.seat(self._target.embed_VD, None if self._tied else self._target.lm_head_VD)

    @property
    def _tied(self) -> bool:
        return self._target.lm_head_VD is self._target.embed_VD

    @torch.inference_mode()
    def ranked(self, text: Text, coupled: bool) -> list[Ranked]:
        """Return the candidates at every anchor but the last token."""
        table_1N = self._table_of(text)
        draft_kv = self._written(text, table_1N)
        anchors = torch.arange(text.start, len(text.ids) - 1)
        found: list[Ranked] = []
        for some_B in anchors.split(_AT_ONCE):
            logits_BKV = self._logits(text, some_B, table_1N, draft_kv)
            if coupled:
                logits_BKV = self._coupled(logits_BKV, text, some_B)
            scores_BKV = logits_BKV.log_softmax(-1)
            best = scores_BKV.topk(max(CANDIDATES), -1)
            found += map(Ranked, best.indices.tolist(), best.values.tolist())
        return found

    def _table_of(self, text: Text) -> Tensor:
        """Return blocks for a text and for the drafts behind it."""
        blocks = -(-(len(text.ids) + self._block.spec.block_size) // BLOCK)
        return torch.arange(1, blocks + 1, dtype=torch.int32)[None]

    def _written(self, text: Text, table_1N: Tensor) -> Tensor:
        """Return the draft context of all positions of a text."""
        target, context = self._target, self._context
        count = len(text.ids)
        slot_1, length_1 = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
        span = plan_span(table_1N, length_1, count, BLOCK)
        rows = Rows(Part(span, slot_1, torch.tensor([count])))
        states = target.new_states(table_1N.shape[1] + 1, BLOCK)
        draft_kv = torch.zeros(context.kv_shape(table_1N.shape[1] + 1, BLOCK))
        _, features_TF = target.forward(torch.tensor(text.ids), rows, states, context.taps)
        context.write(features_TF, rows, draft_kv)
        return draft_kv

    def _logits(self, text: Text, anchors_B: Tensor, table_1N: Tensor, draft_kv: Tensor) -> Tensor:
        """Return the head's logits [B, K, V] of all drafts of a block behind each anchor."""
        spec = self._block.spec
        rows_B, table_BN = torch.arange(len(anchors_B), dtype=torch.int32), table_1N.expand(len(anchors_B), -1)
        anchor_B = torch.tensor(text.ids)[anchors_B]
        ids_BW, span = seat_block(rows_B, anchor_B, anchors_B, table_BN, spec.block_size, BLOCK, spec.mask_token_id)
        hidden_BWD = self._block.hidden(ids_BW, Rows(Part(span, rows_B)), draft_kv, self._tables[0])
        return self._target.logits(hidden_BWD[:, spec.first_row :])

    def _coupled(self, logits_BKV: Tensor, text: Text, anchors_B: Tensor) -> Tensor:
        """Return the scores by which a drafter chooses that draws with the target's noise."""
        depths_K = torch.arange(1, logits_BKV.shape[1] + 1)
        seeds_B = torch.full_like(anchors_B, text.sampling.seed)
        noise_BKV = gumbel(seeds_B, anchors_B[:, None] + depths_K, logits_BKV.shape[2])
        return logits_BKV * (self._block.sharpness / text.sampling.temperature) + noise_BKV


if __name__ == "__main__":
    raise SystemExit(main())
