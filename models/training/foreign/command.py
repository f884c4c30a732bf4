"""python -m models.training drafter --target DIR: write text, learn from it, measure, publish."""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from models.training.foreign.card import Card
from models.training.foreign.chain_learning import ChainLearner
from models.training.foreign.conversation import ChatFormat, read_format
from models.training.foreign.corpus import Conversations, CorpusOptions, kept_text, write_corpus
from models.training.foreign.flags import above_0, block, blocks, check, device, number, rank
from models.training.foreign.folders import begin, form_of, open_learner
from models.training.foreign.frozen import FrozenTarget, load_frozen
from models.training.foreign.heldout import NEW_TOKENS, measure, read_prompts, table, write_answers
from models.training.foreign.kinds import KINDS, Form
from models.training.foreign.learning import Learner, LearningOptions, Reader, learn
from models.training.foreign.packing import Pattern, pack
from models.training.foreign.publish import publish, shape_for
from models.training.foreign.replay import Answer
from models.training.settings import MODELS, Shape
from services.common.model.files.checkpoint import resolve_folder

HELD_OUT = MODELS / "smollm2-dflash" / "heldout_prompts.json"
EAGLE3, CHAIN_TAPS = "eagle3", 3
DRAFTS = 7
"""Of the rounds that are replayed."""
REPORT_S = 10.0
"""What a report takes at most: tau of chains over all held-out answers."""


def main(arguments: list[str]) -> None:
    """Train a drafter for a Llama or Qwen checkpoint.

    Raises:
        ModelError: the checkpoint is damaged or not served.
        ValueError: a drafter cannot be trained for it, or an argument has no meaning.
    """
    options = _parser().parse_args(arguments)
    check(options)
    prompts = read_prompts(options.held_out)
    started = time.monotonic()
    compiled = options.device.startswith("cuda") and not options.eager
    torch.set_float32_matmul_precision("high")
    target, chat = load_frozen(options.target, options.device, compiled), read_format(resolve_folder(options.target))
    learner: Reader
    if options.measure:
        learner = open_learner(options.measure, target, LearningOptions(0.0))
    else:
        learner = _learner(target, chat, options, compiled)
    # Shapes differ from answer to answer: nothing is compiled for them.
    with torch.compiler.set_stance("force_eager"):
        temperatures = [0.0, options.temperature]
        answers = write_answers(target, chat, prompts, temperatures, options.answer_tokens)
    if options.measure:
        print(table(measure(learner, answers, options.drafts)), flush=True)
        return
    Run(learner, chat, answers, options, started).train()
    print(
        f"done: {options.corpus if options.only_text else options.out}, {time.monotonic() - started:.0f} s in all",
        flush=True,
    )


def _learner(target: FrozenTarget, chat: ChatFormat, options: argparse.Namespace, compiled: bool) -> Reader:
    if options.kind == EAGLE3:
        return _chain_learner(target, options, compiled)
    shape = _shape(target, chat, options)
    sizes = tuple((min(size, shape.block_size), count) for size, count in options.blocks)
    how = replace(_how(options, compiled), pattern=Pattern(sizes), pairs_from=options.pairs_from)
    learner = Learner(target, shape, how, Form(options.kind, options.rank))
    if options.start:
        begin(learner, options.start)
    return learner


def _shape(target: FrozenTarget, chat: ChatFormat, options: argparse.Namespace) -> Shape:
    """Return the shape to train; a drafter to start from has its own mask, taps and block."""
    if not options.start:
        mask = mask_token(target, chat) if options.mask_token is None else options.mask_token
        if not 0 <= mask < target.spec.vocab_size:
            raise ValueError(f"--mask-token {mask} is none of the target's {target.spec.vocab_size}")
        return shape_for(target, options.layers, options.block_size, mask, options.taps)
    _, known = form_of(options.start, target)
    shape = shape_for(target, options.layers, known.block_size, known.mask_token_id)
    return replace(shape, target_layer_ids=known.target_layer_ids)


def _chain_learner(target: FrozenTarget, options: argparse.Namespace, compiled: bool) -> ChainLearner:
    if options.start:
        raise ValueError("--start begins with a drafter of blocks; a chain begins anew")
    shape = shape_for(target, 1, options.block_size, 0, options.taps or CHAIN_TAPS)
    return ChainLearner(target, shape, _how(options, compiled))


def _how(options: argparse.Namespace, compiled: bool) -> LearningOptions:
    return LearningOptions(
        options.train_seconds, options.steps, options.rows, temperature=options.temperature, muon_lr=options.rate,
        report_seconds=options.report_seconds, seed=options.seed, compiled=compiled,
    )  # fmt: skip


class Run:
    """One training: text, learning, measuring; drafter and card are written at every report."""

    def __init__(
        self,
        learner: Reader,
        chat: ChatFormat,
        answers: dict[float, list[Answer]],
        options: argparse.Namespace,
        started: float,
    ) -> None:
        self._learner, self._chat, self._answers, self._options = learner, chat, answers, options
        self._started = started
        self.card = Card(
            {"kind": options.kind, "target": options.target, "starts from": str(options.start or "nothing")}
        )

    def train(self) -> None:
        """Write the text, learn, measure."""
        learner, options = self._learner, self._options
        if options.only_text:
            self._texts()
            return
        reserve = self._measure_beside()
        self.report(0, 0.0)
        packed = pack(self._texts())
        print(f"packed: {len(packed.ids)} rows of {options.length}", flush=True)
        left = options.limit_seconds - (time.monotonic() - self._started) - reserve
        learner.options = replace(learner.options, seconds=max(1.0, min(options.train_seconds, left)))
        learn(learner, packed, self.report)
        if not options.brief:
            self._measure(options.kind, learner)

    def report(self, step: int, seconds: float) -> None:
        """Measure tau alone; write the drafter as it is."""
        options, learner = self._options, self._learner
        with torch.compiler.set_stance("force_eager"):
            lines = measure(learner, self._answers, options.drafts, by_kind=False)
        point = {f"tau at {line.temperature}": round(line.tau, 3) for line in lines}
        self.card.curve.append({"step": step, "seconds": round(seconds, 1), **point})
        print(self.card.curve[-1], flush=True)
        sizes = [size for size, _ in learner.options.pattern.counts]
        publish(learner.folded(), options.out, sizes, options.eight_bits)
        self.card.facts |= {"steps": step, "seconds of training": round(seconds, 1), "rows of a step": options.rows}
        self.card.write(options.out)

    def _measure_beside(self) -> float:
        """Measure what the drafter is compared with, else itself; return seconds to keep for the end."""
        began, options = time.monotonic(), self._options
        if options.brief:
            return REPORT_S
        if options.beside:
            learner = open_learner(options.beside, self._learner.target, LearningOptions(0.0))
            self._measure(str(options.beside), learner)
        else:
            self._measure("the beginning", self._learner)
        return 1.5 * (time.monotonic() - began) + 5.0

    def _measure(self, name: str, learner: Reader) -> None:
        with torch.compiler.set_stance("force_eager"):
            lines = measure(learner, self._answers, self._options.drafts)
        self.card.taus[name] = lines
        self.card.write(self._options.out)
        print(f"{name}:\n{table(lines)}", flush=True)

    def _texts(self) -> Conversations:
        """Let the target write, or read what an earlier run kept."""
        options, target = self._options, self._learner.target
        if options.corpus is not None and options.corpus.exists():
            texts = kept_text(options.corpus, target.device)
        else:
            held_out = [prompt.prompt for prompt in read_prompts(options.held_out)]
            texts = write_corpus(target, self._chat, target.spec.eos_token_ids, held_out, _corpus(options))
            if options.corpus is not None:
                torch.save(vars(texts), options.corpus)
        self.card.facts |= {"conversations": len(texts.ids), "tokens": texts.tokens}
        return texts


def _corpus(options: argparse.Namespace) -> CorpusOptions:
    return CorpusOptions(
        seconds=options.data_seconds, conversations=options.conversations, slots=options.slots, length=options.length,
        temperature=options.temperature, seed=options.seed,
        compiled=options.device.startswith("cuda") and not options.eager,
    )  # fmt: skip


def mask_token(target: FrozenTarget, chat: ChatFormat) -> int:
    """Return a token that no conversation holds: the first row behind the tokenizer's, else a special token.

    Raises:
        ValueError: there is none.
    """
    count = len(chat.tokenizer)
    if count < target.spec.vocab_size:
        return count
    used = {*chat.prompts([""])[0], *target.spec.eos_token_ids, *chat.tokenizer.encode("")}
    special = set(chat.tokenizer.all_special_ids) | {
        index for index, token in chat.tokenizer.added_tokens_decoder.items() if token.special
    }
    free = sorted(special - used - {chat.tokenizer.bos_token_id, chat.tokenizer.pad_token_id})
    if not free:
        raise ValueError(
            "every special token of the tokenizer is in use: name a token that texts never hold (--mask-token)"
        )
    return int(free[-1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.training drafter", description=main.__doc__)
    add = parser.add_argument
    add("--target", required=True, help="folder or GGUF file of a dense Llama or Qwen model with a chat template")
    add("--kind", choices=sorted((*KINDS, EAGLE3)), default="dflash")
    add(
        "--rank",
        type=rank,
        default=32,
        help="of what a kind has for the token before: dflash2's selector, dspark's bias",
    )
    add(
        "--start",
        type=Path,
        help="DFlash drafter of the same width and as many layers or more, whose weights to begin with",
    )
    add("--beside", type=Path, help="drafter to be measured on the same answers")
    add("--limit-seconds", type=number(), default=1e9, help="of the whole run: training ends early enough to measure")
    add("--out", type=Path, default=Path("build/drafter"), help="where the drafter is written")
    add("--eight-bits", action="store_true", help="write the products of layers in eight bits: half the file")
    add("--device", type=device, default="cuda" if torch.cuda.is_available() else "cpu")
    add("--data-seconds", type=number(), default=170.0, help="how long the target writes")
    add("--train-seconds", type=number(), default=650.0, help="how long the drafter learns")
    add("--conversations", type=above_0, default=400_000, help="most prompts to write for")
    add("--only-text", action="store_true", help="write the text for --corpus and end")
    add("--corpus", type=Path, help="file that keeps what the target wrote; read when it exists")
    add("--rate", type=number(), default=0.02, help="highest rate of matrices; less where a drafter has learnt already")
    add(
        "--pairs-from", type=number(0.0, 1.0), default=0.25, help="share of the budget after which heads of pairs learn"
    )
    add("--report-seconds", type=number(), default=90.0, help="between two checkpoints")
    add("--steps", type=above_0, default=10**9, help="most training steps")
    add(
        "--slots",
        type=above_0,
        default=4096,
        help="texts written at a time: memory is slots x length x K/V of a token",
    )
    add("--length", type=above_0, default=512, help="most tokens of a conversation, and of a packed row")
    add("--rows", type=above_0, default=48, help="packed rows of a step")
    add("--layers", type=above_0, default=5)
    add("--taps", type=above_0, help="target layers whose output is read; default: as many as --layers")
    add("--block-size", type=block, default=16)
    add("--blocks", type=blocks, default=Pattern.counts, help="blocks that a packed row gives, as SIZE:COUNT,...")
    add("--mask-token", type=int, help="id of a token that texts never hold; default: found")
    add("--temperature", type=number(), default=0.8, help="of drawn texts")
    add("--held-out", type=Path, default=HELD_OUT, help="prompts to measure with, by kind")
    add("--answer-tokens", type=above_0, default=NEW_TOKENS, help="most tokens of an answer to measure with")
    add("--drafts", type=above_0, default=DRAFTS, help="tokens drafted a round where tau is measured")
    add("--measure", type=Path, help="train nothing, and measure this drafter")
    add(
        "--brief",
        action="store_true",
        help="of the held-out answers count chains alone; --measure tells the rest later",
    )
    add("--eager", action="store_true", help="compile nothing")
    add("--seed", type=int, default=1)
    return parser
