"""python -m models.training.eagle3: trains an EAGLE-3 drafter for the embedded dense target, on its training files.

Each step learns what the target says of the files, so that the target need not write. Tau is counted over the held-out
prompts at the end, greedy and drawn, with the share of rounds that accept up to each place.
"""

import argparse
import json
import random
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from models.training.corpus import Source, load_corpus
from models.training.foreign.chain_learning import ChainLearner
from models.training.foreign.conversation import ChatFormat
from models.training.foreign.corpus import Conversations
from models.training.foreign.frozen import FrozenTarget, load_frozen
from models.training.foreign.heldout import Prompt, measure, table, write_answers
from models.training.foreign.learning import LearningOptions, learn
from models.training.foreign.packing import Packed, pack
from models.training.foreign.publish import publish, shape_for
from models.training.foreign.replay import Answer
from models.training.settings import MODELS
from models.training.tokenizer import encode_sources

EMBEDDED = MODELS / "embedded"
LENGTH, FIRST = 128, 8
"""Tokens of a text, and the first that a chain may begin behind."""
BYTES_A_TOKEN = 3
DRAFTS, TEMPERATURES = 5, (0.0, 0.8)


@dataclass(frozen=True)
class Places:
    """Tokens a round, and by place the share of rounds whose drafts are accepted up to it."""

    temperature: float
    tau: float
    shares: tuple[float, ...]


def read_texts(target: FrozenTarget, folder: Path, library: Path, tokens: int, seed: int) -> Packed:
    """Return random pieces of the training files, packed."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    sources, chosen, size = list(load_corpus(library).train), list[Source](), 0
    random.Random(seed).shuffle(sources)
    while sources and size < BYTES_A_TOKEN * tokens:
        chosen.append(sources.pop())
        size += len(chosen[-1].text)
    stream = encode_sources(tokenizer, chosen, target.spec.eos_token_ids[0])
    places = torch.randint(len(stream) - LENGTH, (tokens // LENGTH, 1), generator=torch.Generator().manual_seed(seed))
    ids = stream[places + torch.arange(LENGTH)].int().to(target.device)
    full = torch.full((len(ids),), LENGTH, device=target.device)
    return pack(Conversations(ids, torch.full_like(full, FIRST), full, torch.zeros_like(full, dtype=torch.bool)))


def places_of(learner: ChainLearner, answers: Sequence[Answer], temperature: float, drafts: int = DRAFTS) -> Places:
    """Replay rounds over answers."""
    rounds = tokens = 0
    reached = [0] * drafts
    for answer in answers:
        right = learner.hits(tuple(answer.ids), answer.start, drafts).int().cumprod(1).sum(1).tolist()
        anchor, last = answer.start, len(answer.ids) - 1 - drafts
        while anchor < last:
            made = right[anchor - answer.start]
            reached = [count + (place < made) for place, count in enumerate(reached)]
            anchor, rounds, tokens = anchor + made + 1, rounds + 1, tokens + made + 1
    return Places(temperature, tokens / max(1, rounds), tuple(count / max(1, rounds) for count in reached))


def main() -> None:
    """Train, publish, and print tau."""
    given = _parser().parse_args()
    target = load_frozen(given.target, given.device)
    options = LearningOptions(
        60.0 * given.minutes, given.steps, given.rows, muon_lr=0.01, report_seconds=120.0, seed=given.seed
    )
    learner = ChainLearner(target, shape_for(target, 1, 8, 0, 3), options)
    packed = read_texts(target, given.target, given.stdlib, given.tokens, given.seed)
    learn(learner, packed, lambda _step, _seconds: publish(learner.folded(), given.out))
    asked = json.loads((EMBEDDED / "heldout_prompts.json").read_text("utf-8"))[: given.prompts]
    plain = ChatFormat(AutoTokenizer.from_pretrained(given.target), "", "")
    prompts = [Prompt("python", text) for text in asked]
    answers = write_answers(target, plain, prompts, list(TEMPERATURES), given.answer_tokens)
    print(table(measure(learner, answers, DRAFTS)), flush=True)
    for temperature, some in answers.items():
        print(places_of(learner, some, temperature), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.training.eagle3", description=__doc__)
    parser.add_argument("--target", type=Path, default=EMBEDDED / "target")
    parser.add_argument("--out", type=Path, default=EMBEDDED / "eagle3")
    parser.add_argument("--stdlib", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--answer-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
