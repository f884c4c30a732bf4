"""The stages of a run; each reads the work of the earlier ones from disk."""

import json
from collections.abc import Callable
from dataclasses import asdict

from tokenizers import Tokenizer
from torch import Tensor

from models.training.corpus import load_corpus
from models.training.drafter import load_drafter, train_drafter
from models.training.export import export_pair
from models.training.generate import generate
from models.training.offline_tau import measure_tau
from models.training.prompts import choose_prompts, save_prompts
from models.training.settings import MODELS, Settings
from models.training.target import held_out_loss, load_target, train_target
from models.training.tokenizer import copy_tokenizer, encode_sources, save_tokenizer, train_tokenizer
from models.training.workers import rank

EMBEDDED = MODELS / "embedded"


def _tokenize(settings: Settings) -> None:
    """The hybrid reads and writes by the embedded pair's tokenizer; that pair's is learnt."""
    if settings.shape.delta is not None:
        copy_tokenizer(EMBEDDED / "target", settings.work / "tokenizer")
        return
    texts = (source.text for source in load_corpus(settings.stdlib).train)
    save_tokenizer(train_tokenizer(texts, settings.shape), settings.work / "tokenizer", settings.shape)


def _target(settings: Settings) -> None:
    train, held_out = _streams(settings)
    train_target(settings, train)
    if rank() > 0:
        return
    print(f"corpus: {len(train)} training tokens, {len(held_out)} held out", flush=True)
    loss = held_out_loss(load_target(settings), held_out, settings.device)
    print(f"target: held-out loss {loss:.4f}", flush=True)


def _generate(settings: Settings) -> None:
    train, _ = _streams(settings)
    generate(settings, load_target(settings), train)


def _drafter(settings: Settings) -> None:
    train_drafter(settings, load_target(settings))


def _export(settings: Settings) -> None:
    export_pair(settings, load_target(settings), load_drafter(settings), settings.out)
    if settings.shape.delta is None:
        held_out = load_corpus(settings.stdlib).held_out
        prompts = choose_prompts(_tokenizer(settings), held_out, settings.tau.prompts, settings.seed)
        save_prompts(prompts, settings.out)


def _tau(settings: Settings) -> None:
    prompts: list[str] = json.loads((EMBEDDED / "heldout_prompts.json").read_text(encoding="utf-8"))
    lines = measure_tau(settings, load_target(settings), load_drafter(settings), _tokenizer(settings), prompts)
    report = json.dumps([asdict(line) for line in lines], indent=1)
    (settings.work / "tau.json").write_text(report + "\n")
    print(report, flush=True)


def _tokenizer(settings: Settings) -> Tokenizer:
    return Tokenizer.from_file(str(settings.work / "tokenizer" / "tokenizer.json"))


def _streams(settings: Settings) -> tuple[Tensor, Tensor]:
    tokenizer, corpus, eos = _tokenizer(settings), load_corpus(settings.stdlib), settings.shape.eos_token_id
    return encode_sources(tokenizer, corpus.train, eos), encode_sources(tokenizer, corpus.held_out, eos)


SHARED = frozenset({"target", "generate", "drafter"})
STAGES: dict[str, Callable[[Settings], None]] = {
    "tokenizer": _tokenize,
    "target": _target,
    "generate": _generate,
    "drafter": _drafter,
    "export": _export,
    "tau": _tau,
}
