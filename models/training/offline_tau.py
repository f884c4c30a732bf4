"""Offline acceptance: the mean number of tokens a speculative round would commit.

The text depends on the target alone, so it is written once and the rounds are
replayed over it: from an anchor, drafts count while they equal the text.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.training.drafter import Drafter, block_embeddings, cut_blocks
from models.training.generate import Sampling, Shard, continue_prompts
from models.training.settings import Settings
from models.training.target import Target

Accepted = Callable[[int], int]


@dataclass(frozen=True)
class Tau:
    """One line of the table; taus are tokens per round, the bonus token included."""

    temperature: float
    dflash: float
    shuffled_features: float
    ngram: float
    distinct_4grams: float
    position_recall: tuple[float, ...]


@dataclass(frozen=True)
class Text:
    """Continued prompts and the half-open span [start, stop) of each row's response."""

    shard: Shard
    spans: tuple[tuple[int, int], ...]


def measure_tau(
    settings: Settings, target: Target, drafter: Drafter, tokenizer: Tokenizer, prompts: list[str]
) -> list[Tau]:
    """Return one line for greedy decoding and one for sampling."""
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(prompts)]
    return [
        _measure(_write(settings, target, encoded, temperature), temperature, target, drafter)
        for temperature in (0.0, settings.tau.temperature)
    ]


def _measure(text: Text, temperature: float, target: Target, drafter: Drafter) -> Tau:
    features = text.shard.features
    flat = features.flatten(0, 1)
    order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(0))
    shuffled = flat[order.to(flat.device)].view_as(features)
    hits = [_hits(text, row, features[row], target, drafter) for row in range(len(text.spans))]
    blind = [_hits(text, row, shuffled[row], target, drafter) for row in range(len(text.spans))]
    rows = [row[: span[1]] for row, span in zip(text.shard.ids.tolist(), text.spans, strict=True)]
    size = drafter.shape.block_size
    return Tau(
        temperature=temperature,
        dflash=_replay(text, [_table(hit, span) for hit, span in zip(hits, text.spans, strict=True)]),
        shuffled_features=_replay(text, [_table(hit, span) for hit, span in zip(blind, text.spans, strict=True)]),
        ngram=_replay(text, [_lookup(ids, size) for ids in text.shard.ids.tolist()]),
        distinct_4grams=sum(_distinct(row[span[0] :], 4) for row, span in zip(rows, text.spans, strict=True))
        / len(rows),
        position_recall=tuple(torch.cat(hits).float().mean(0).tolist()),
    )


@torch.no_grad()
def _write(settings: Settings, target: Target, encoded: list[list[int]], temperature: float) -> Text:
    """Continue the prompts; a response ends before an end-of-text token."""
    options, device = settings.tau, settings.device
    lengths = torch.tensor([len(ids) for ids in encoded], device=device)
    longest = int(lengths.max())
    padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids in encoded], device=device)
    generator = torch.Generator(device).manual_seed(settings.seed)
    greedy_rows = len(encoded) if temperature == 0.0 else 0
    sampling = Sampling(greedy_rows, temperature or 1.0, generator)
    total = longest + options.new_tokens + settings.shape.block_size
    shard = continue_prompts(target, padded, lengths, total, sampling)
    spans: list[tuple[int, int]] = []
    for start, ids in zip(lengths.tolist(), shard.ids.tolist(), strict=True):
        response = ids[start : start + options.new_tokens]
        eos = settings.shape.eos_token_id
        spans.append((start, start + (response.index(eos) if eos in response else len(response))))
    return Text(shard, tuple(spans))


@torch.no_grad()
def _hits(text: Text, row: int, features: Tensor, target: Target, drafter: Drafter) -> Tensor:
    """Return, for every anchor of the response, which of its K drafts equal the text."""
    start, stop = text.spans[row]
    ids = text.shard.ids[row : row + 1].long()
    anchors = torch.arange(start, max(stop, start + 1), device=ids.device)[None]
    blocks = cut_blocks(ids, features[None], anchors, drafter.shape.block_size)
    hidden = drafter(features[None], anchors, block_embeddings(target, blocks.tokens))
    drafts = target.head(hidden).argmax(-1)
    return (drafts == blocks.tokens[..., 1:])[0].cpu()


def _table(hits: Tensor, span: tuple[int, int]) -> Accepted:
    accepted: list[int] = hits.int().cumprod(1).sum(1).tolist()
    return lambda anchor: accepted[anchor - span[0]]


def _lookup(ids: list[int], size: int) -> Accepted:
    """Prompt lookup: propose what followed the latest earlier match of the last 3..1 tokens."""

    def accepted(anchor: int) -> int:
        for width in (3, 2, 1):
            suffix = ids[anchor + 1 - width : anchor + 1]
            for end in range(anchor - 1, width - 2, -1):
                if ids[end + 1 - width : end + 1] == suffix:
                    return _matching(ids, end + 1, anchor + 1, min(size - 1, anchor - end))
        return 0

    return accepted


def _matching(ids: list[int], left: int, right: int, limit: int) -> int:
    count = 0
    while count < limit and ids[left + count] == ids[right + count]:
        count += 1
    return count


def _replay(text: Text, tables: list[Accepted]) -> float:
    rounds = tokens = 0
    for (start, stop), accepted in zip(text.spans, tables, strict=True):
        anchor = start
        while anchor < stop - 1:
            committed = accepted(anchor) + 1
            anchor, rounds, tokens = anchor + committed, rounds + 1, tokens + committed
    return tokens / max(1, rounds)


def _distinct(ids: list[int], width: int) -> float:
    grams = [tuple(ids[i : i + width]) for i in range(len(ids) - width + 1)]
    return len(set(grams)) / max(1, len(grams))
