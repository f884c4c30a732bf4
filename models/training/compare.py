"""python -m models.training.compare: trains drafters of several kinds for the embedded dense target, each as long.

The target goes on with pieces of its training files, greedily and drawn. Every step draws one batch of that, and each
drafter learns from it: all have the same text and as many steps. What they accept is counted over held-out prompts.
"""

import argparse
import json
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from models.training.corpus import load_corpus
from models.training.foreign.card import Card, grid, tau_grid
from models.training.foreign.chain_learning import ChainLearner
from models.training.foreign.conversation import ChatFormat
from models.training.foreign.corpus import AFTER_LOOP, SHORTEST_ANSWER, Conversations
from models.training.foreign.frozen import FrozenTarget, load_frozen
from models.training.foreign.heldout import Line, Prompt, measure, write_answers
from models.training.foreign.kinds import KINDS, Form
from models.training.foreign.learning import Learner, LearningOptions, Reader, learn_together
from models.training.foreign.loops import first_repeats
from models.training.foreign.packing import Pattern, pack
from models.training.foreign.publish import publish, shape_for
from models.training.foreign.replay import Answer, accepted_table, ask, hits_of, reached
from models.training.foreign.writing import Writing, write
from models.training.settings import MODELS, GenerateSettings, Shape
from models.training.tokenizer import encode_sources

EMBEDDED = MODELS / "embedded"
EAGLE3 = "eagle3"
DRAFTS = 7
SHAPE = Shape()
"""Layers, taps and block of the drafter that is shipped: all kinds of blocks have them."""
TEMPERATURE = 0.8
HOW = GenerateSettings(tokens=0, minutes=0.0, batch=0)
"""How long the beginnings are, and how many texts are greedy, as of the drafter that is shipped."""


def write_texts(target: FrozenTarget, folder: Path, given: argparse.Namespace) -> Conversations:
    """Let the target go on with random pieces of its training files for some seconds."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stream = encode_sources(tokenizer, load_corpus(given.stdlib).train, target.spec.eos_token_ids[0])
    draw = torch.Generator().manual_seed(given.seed)
    sizes = torch.randint(HOW.shortest_prompt, HOW.longest_prompt + 1, (given.texts,), generator=draw).tolist()
    places = torch.randint(len(stream) - HOW.longest_prompt, (given.texts,), generator=draw).tolist()
    begun = [stream[place : place + size].tolist() for place, size in zip(places, sizes, strict=True)]
    flat = torch.rand(given.texts, generator=draw) < HOW.greedy_share
    how = Writing(given.length, given.slots, tuple(target.spec.eos_token_ids))
    hot = torch.where(flat, 0.0, TEMPERATURE).tolist()
    torch.manual_seed(given.seed)
    ids, ends = write(target, begun, hot, how, given.data_seconds)
    starts = torch.tensor(sizes, device=ids.device)
    ends = torch.minimum(ends, first_repeats(ids, starts, ends) + AFTER_LOOP)
    kept = ends - starts >= SHORTEST_ANSWER
    return Conversations(ids[kept], starts[kept], ends[kept], flat.to(ids.device)[kept])


def learner_of(kind: str, target: FrozenTarget, options: LearningOptions, rank: int) -> Reader:
    """Return a drafter before training, of as many layers as a kind has."""
    if kind == EAGLE3:
        taps = len(SHAPE.target_layer_ids)
        learner: Reader = ChainLearner(target, shape_for(target, 1, SHAPE.block_size, 0, taps), options)
    else:
        taps = len(SHAPE.target_layer_ids)
        shape = shape_for(target, SHAPE.draft_layers, SHAPE.block_size, SHAPE.mask_token_id, taps)
        learner = Learner(target, shape, options, Form(kind, rank))
    learner.name = kind
    return learner


def by_place(learner: Reader, answers: Sequence[Answer]) -> list[float]:
    """Return the share of rounds whose drafts are right up to each place."""
    rounds, counts = 0, [0] * DRAFTS
    for answer in answers:
        if isinstance(learner, ChainLearner):
            hits = learner.hits(tuple(answer.ids), answer.start, DRAFTS)
        else:
            assert isinstance(learner, Learner)
            hits = hits_of(learner, answer, ask(learner, answer, DRAFTS + 1))
        more, right = reached(accepted_table(hits), answer.start, len(answer.ids), DRAFTS)
        rounds, counts = rounds + more, [count + one for count, one in zip(counts, right, strict=True)]
    return [count / max(1, rounds) for count in counts]


class Comparison:
    """Drafters by kind, the answers that they are measured with, and what a run says of them."""

    def __init__(
        self, learners: Sequence[Reader], answers: dict[float, list[Answer]], given: argparse.Namespace
    ) -> None:
        self.learners, self.answers, self.given = learners, answers, given
        self.facts: dict[str, object] = {"target": "models/embedded/target", "rank of pairs": given.rank}

    def report(self, step: int, seconds: float) -> None:
        """Write all drafters as they are."""
        self.facts |= {"steps": step, "seconds of training, all kinds": round(seconds, 1)}
        print(f"step {step}, {seconds:.0f} s", flush=True)
        for learner in self.learners:
            publish(learner.folded(), self.given.out / learner.name)

    def measure(self) -> str:
        """Measure all, write their cards, and return a table."""
        rows, base = list[list[str]](), dict[float, Line]()
        for learner in self.learners:
            lines = measure(learner, self.answers, DRAFTS)
            lines = [line for line in lines if line.kind == "all"]
            card = Card({"kind": learner.name, **self.facts}, taus={learner.name: lines})
            card.write(self.given.out / learner.name)
            print(f"{learner.name}:\n{tau_grid(lines)}", flush=True)
            for line in lines:
                first = base.setdefault(line.temperature, line)
                places = by_place(learner, self.answers[line.temperature])
                rows.append(
                    [learner.name, f"{line.temperature}", f"{line.tau:.3f}", f"{line.tau / first.tau:.3f}",
                     f"{line.cut:.3f}", f"{line.nodes_8:.3f}", f"{line.nodes_16:.3f}",
                     f"{line.foreign_features:.3f}", " ".join(f"{share:.2f}" for share in places)]
                )  # fmt: skip
        head = ["kind", "T", "tau", f"over {self.learners[0].name}", "cut", "8 rows", "16", "foreign", "right up to"]
        return grid(head, rows)


def main() -> None:
    """Write text, train, publish, and print tau."""
    given, started = _parser().parse_args(), time.monotonic()
    torch.set_float32_matmul_precision("high")
    target = load_frozen(given.target, given.device)
    if given.corpus is not None and given.corpus.exists():
        texts = Conversations(**torch.load(given.corpus, map_location=target.device))
    else:
        texts = write_texts(target, given.target, given)
        if given.corpus is not None:
            torch.save(vars(texts), given.corpus)
    packed = pack(texts)
    print(f"{len(texts.ids)} texts, {texts.tokens} tokens, {len(packed.ids)} rows", flush=True)
    if given.only_text:
        return
    asked = json.loads((EMBEDDED / "heldout_prompts.json").read_text("utf-8"))[: given.prompts]
    from transformers import AutoTokenizer  # takes a second

    plain = ChatFormat(AutoTokenizer.from_pretrained(given.target), "", "")
    prompts = [Prompt("python", text) for text in asked for _ in range(given.each)]
    answers = write_answers(target, plain, prompts, [0.0, TEMPERATURE], given.answer_tokens)
    answers[0.0] = answers[0.0][:: given.each]
    left = given.limit_seconds - (time.monotonic() - started)
    options = LearningOptions(
        max(1.0, left), given.steps, given.rows, Pattern(((SHAPE.block_size, given.blocks),)), temperature=TEMPERATURE,
        muon_lr=given.rate, report_seconds=60.0, seed=given.seed, compiled=given.compiled,
    )  # fmt: skip
    run = Comparison([learner_of(kind, target, options, given.rank) for kind in given.kinds], answers, given)
    run.facts |= {"texts": len(texts.ids), "tokens": texts.tokens, "rows of a step": given.rows}
    learn_together(run.learners, packed, run.report)
    print(run.measure(), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.training.compare", description=__doc__)
    add = parser.add_argument
    add("--target", type=Path, default=EMBEDDED / "target")
    add("--out", type=Path, default=Path("build/kinds"), help="where a folder of each kind is written")
    add("--kinds", nargs="+", choices=sorted((*KINDS, EAGLE3)), default=["dflash", "dflash2", "dspark"])
    add("--stdlib", type=Path, default=Path(sysconfig.get_path("stdlib")))
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--compiled", action="store_true", help="compile layers and losses: a minute, and steps of half the time")
    add("--rank", type=int, default=64, help="of what a kind has for the token before")
    add("--rate", type=float, default=0.02, help="highest rate of matrices")
    add("--texts", type=int, default=90_000, help="most texts that the target writes")
    add("--slots", type=int, default=4096)
    add("--length", type=int, default=512)
    add("--data-seconds", type=float, default=40.0)
    add("--corpus", type=Path, help="file that keeps what the target wrote; read when it exists")
    add("--only-text", action="store_true", help="write the text for --corpus and end")
    add("--limit-seconds", type=float, default=1e9, help="of text and training; measuring comes behind it")
    add("--steps", type=int, default=10**9)
    add("--rows", type=int, default=48, help="packed rows of a step")
    add("--blocks", type=int, default=64, help="blocks of a packed row")
    add("--prompts", type=int, default=40)
    add("--each", type=int, default=3, help="drawn answers to each prompt")
    add("--answer-tokens", type=int, default=256)
    add("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
