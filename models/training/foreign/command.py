"""python -m models.training drafter --target DIR: write text, learn from it, measure, publish."""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from models.training.foreign.conversation import ChatFormat, read_format
from models.training.foreign.corpus import Conversations, CorpusOptions, write_corpus
from models.training.foreign.frozen import FrozenTarget, load_frozen
from models.training.foreign.heldout import NEW_TOKENS, Prompt, measure, read_prompts, save, table, write_answers
from models.training.foreign.learning import Learner, LearningOptions, learn
from models.training.foreign.packing import Pattern, pack
from models.training.foreign.publish import load_published, publish, shape_for
from models.training.foreign.replay import Answer
from models.training.settings import MODELS
from services.common.model.files.checkpoint import resolve_folder

HELD_OUT = MODELS / "smollm2-dflash" / "heldout_prompts.json"
DRAFTS = 7
"""Of the rounds that are replayed."""


def main(arguments: list[str]) -> None:
    """Train a drafter for a Llama or Qwen checkpoint.

    Raises:
        ModelError: the checkpoint is damaged or not served.
        ValueError: a drafter cannot be trained for it, or an argument has no meaning.
    """
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    compiled = options.device.startswith("cuda") and not options.eager
    torch.set_float32_matmul_precision("high")
    target, chat = load_frozen(options.target, options.device, compiled), read_format(resolve_folder(options.target))
    mask = mask_token(target, chat) if options.mask_token is None else options.mask_token
    shape = shape_for(target, options.layers, options.block_size, mask, options.taps)
    held_out = read_prompts(options.held_out)
    sizes = tuple((min(size, options.block_size), count) for size, count in Pattern().counts)
    how = LearningOptions(
        options.train_seconds, options.steps, options.rows, Pattern(sizes), seed=options.seed, compiled=compiled
    )
    learner = Learner(target, shape, replace(how, temperature=options.temperature))
    # Shapes differ from answer to answer: nothing is compiled for them.
    with torch.compiler.set_stance("force_eager"):
        answers = write_answers(target, chat, held_out, [0.0, options.temperature], options.answer_tokens)
    if options.measure:
        learner.drafter.load_state_dict(load_published(options.measure, shape).state_dict())
        print(table(measure(learner, answers, options.drafts)), flush=True)
        return
    _train(learner, chat, held_out, answers, options)
    print(f"drafter: {options.out}, {time.monotonic() - started:.0f} s in all", flush=True)


def _train(
    learner: Learner,
    chat: ChatFormat,
    held_out: list[Prompt],
    answers: dict[float, list[Answer]],
    options: argparse.Namespace,
) -> None:
    corpus = CorpusOptions(
        seconds=options.data_seconds, conversations=options.conversations, slots=options.slots, length=options.length,
        temperature=options.temperature, seed=options.seed, compiled=learner.options.compiled,
    )  # fmt: skip
    curve: list[dict[str, float]] = []

    def report(step: int, seconds: float) -> None:
        with torch.compiler.set_stance("force_eager"):
            lines = measure(learner, answers, options.drafts, by_kind=False)
        point = {f"tau at {line.temperature}": round(line.tau, 3) for line in lines}
        curve.append({"step": step, "seconds": round(seconds, 1), **point})
        print(curve[-1], flush=True)
        publish(learner.folded(), options.out, [size for size, _ in learner.options.pattern.counts])

    report(0, 0.0)
    packed = pack(_texts(learner, chat, held_out, corpus, options.corpus))
    print(f"packed: {len(packed.ids)} rows of {options.length}", flush=True)
    learn(learner, packed, report)
    with torch.compiler.set_stance("force_eager"):
        lines = measure(learner, answers, options.drafts)
    save(lines, options.out / "tau.json")
    (options.out / "curve.json").write_text(json.dumps(curve, indent=1) + "\n", "utf-8")
    print(table(lines), flush=True)


def _texts(
    learner: Learner, chat: ChatFormat, held_out: list[Prompt], options: CorpusOptions, kept: Path | None
) -> Conversations:
    """Write the training text, or read what an earlier run kept."""
    target = learner.target
    if kept is not None and kept.exists():
        return Conversations(**torch.load(kept, map_location=target.device))
    texts = write_corpus(target, chat, target.spec.eos_token_ids, [prompt.prompt for prompt in held_out], options)
    if kept is not None:
        torch.save(vars(texts), kept)
    return texts


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
    add("--out", type=Path, default=Path("build/drafter"), help="where the drafter is written")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--data-seconds", type=float, default=170.0, help="how long the target writes")
    add("--train-seconds", type=float, default=650.0, help="how long the drafter learns")
    add("--conversations", type=int, default=400_000, help="most prompts to write for")
    add("--corpus", type=Path, help="file that keeps what the target wrote; read when it exists")
    add("--steps", type=int, default=10**9, help="most training steps")
    add("--slots", type=int, default=4096, help="texts written at a time: memory is slots x length x K/V of a token")
    add("--length", type=int, default=512, help="most tokens of a conversation, and of a packed row")
    add("--rows", type=int, default=48, help="packed rows of a step")
    add("--layers", type=int, default=5)
    add("--taps", type=int, help="target layers whose output is read; default: as many as --layers")
    add("--block-size", type=int, default=16)
    add("--mask-token", type=int, help="id of a token that texts never hold; default: found")
    add("--temperature", type=float, default=0.8, help="of drawn texts")
    add("--held-out", type=Path, default=HELD_OUT, help="prompts to measure with, by kind")
    add("--answer-tokens", type=int, default=NEW_TOKENS, help="most tokens of an answer to measure with")
    add("--drafts", type=int, default=DRAFTS, help="tokens drafted a round where tau is measured")
    add("--measure", type=Path, help="train nothing, and measure this drafter of the same shape")
    add("--eager", action="store_true", help="compile nothing")
    add("--seed", type=int, default=1)
    return parser
