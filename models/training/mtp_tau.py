"""python -m models.training.mtp_tau: what a hybrid's own drafting head would accept, offline, over held-out prompts.

The text depends on the target alone, so it is written once, and rounds are replayed over it. Drafts count while they
equal the text, so each step may be given the text's tokens. The control has the states of other places.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from models.training.mtp import BLOCK, HEAD_FILE, Head, published_target
from models.training.network import rotation_at
from models.training.settings import MODELS, PRESETS, Shape
from models.training.target import Target
from services.common.kernels.span_attention import plan_span
from services.common.model import Target as ServedTarget
from services.common.model import load_target as load_served
from services.common.model.states.states import Part, Rows


@dataclass(frozen=True)
class Line:
    """Tokens a round with the bonus at K drafts, and the share of rounds whose drafts are accepted up to each place."""

    temperature: float
    drafts: int
    tau: float
    shuffled: float
    by_place: tuple[float, ...]


@dataclass(frozen=True)
class Written:
    """Texts [rows, length], the target's hidden states of them, and where each row's answer starts."""

    ids: Tensor
    hidden: Tensor
    starts: tuple[int, ...]


@torch.no_grad()
def write(served: ServedTarget, prompts: Sequence[Sequence[int]], tokens: int, temperature: float) -> Written:
    """Continue prompts by so many tokens, greedily at temperature 0, all rows one token at a time."""
    rows, starts = len(prompts), tuple(map(len, prompts))
    length, generator = max(starts) + tokens, torch.Generator().manual_seed(1)
    blocks, slots_B, ones_B = -(-length // BLOCK), torch.arange(rows), torch.ones(rows, dtype=torch.long)
    states = served.new_states(rows * blocks + 1, BLOCK, slots=rows + 1, width=1)
    table_BN = torch.arange(1, rows * blocks + 1, dtype=torch.int32).view(rows, blocks)
    ids, hidden = torch.zeros(rows, length + 1, dtype=torch.long), []
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    given_B = torch.tensor(starts)
    for place in range(length):
        span = plan_span(table_BN, torch.full((rows,), place), 1, BLOCK, ones_B)
        rows_D = served.forward(ids[:, place], Rows(Part(span, slots_B, ones_B)), states)[0]
        hidden.append(rows_D)
        scores_V = served.logits(rows_D)
        if temperature:
            scores_V = scores_V / temperature - torch.empty_like(scores_V).exponential_(generator=generator).log()
        ids[:, place + 1] = torch.where(place + 1 < given_B, ids[:, place + 1], scores_V.argmax(-1))
    return Written(ids, torch.stack(hidden, 1), starts)


@torch.no_grad()
def accepted(head: Head, target: Target, written: Written, hidden: Tensor, count: int) -> Tensor:
    """Return [rows, places] how many of the drafts behind each anchor are accepted; the anchor's place comes first."""
    ids, table = written.ids, target.model.embed_tokens.weight
    rotation = rotation_at(torch.arange(1, ids.shape[1]), target.shape)
    steps = head.steps(F.embedding(ids[:, 1:], table), hidden, rotation, count)
    hits = ids.new_zeros((*ids.shape, count))
    for step, rows in enumerate(steps):
        drafts = F.linear(rows, table).argmax(-1)  # of the place behind each row's
        right = drafts[:, step:-1] == ids[:, 2 + step :]
        hits[:, 1 : 1 + right.shape[1], step] = right
    return hits.cumprod(-1).sum(-1)


def replayed(table: Tensor, written: Written, count: int) -> tuple[float, list[float]]:
    """Return tokens a round, and by place the share of rounds that accept so many drafts."""
    rounds, tokens, reached, last = 0, 0, [0] * count, written.ids.shape[1] - 1 - count
    for row, start in enumerate(written.starts):
        anchor = start
        while anchor < last:
            right = int(table[row, anchor])
            rounds, tokens, anchor = rounds + 1, tokens + right + 1, anchor + right + 1
            reached = [total + (place < right) for place, total in enumerate(reached)]
    return tokens / rounds, [total / rounds for total in reached]


def trained_head(folder: Path, shape: Shape) -> Head:
    """Return the head of a folder."""
    head, saved = Head(shape), load_file(folder / HEAD_FILE)
    head.load_state_dict({name.removeprefix("mtp."): tensor.float() for name, tensor in saved.items()})
    return head


def measured(folder: Path, prompts: Sequence[Sequence[int]], tokens: int, counts: Sequence[int]) -> list[Line]:
    """Return a line for each temperature and number of drafts."""
    served, target = load_served(folder), published_target(folder)
    head = trained_head(folder, target.shape)
    lines = []
    for temperature in (0.0, 0.8):
        written = write(served, prompts, tokens, temperature)
        order = torch.randperm(written.hidden[..., 0].numel(), generator=torch.Generator().manual_seed(0))
        other = written.hidden.flatten(0, 1)[order].view_as(written.hidden)
        for count in counts:
            table = accepted(head, target, written, written.hidden, count)
            tau, places = replayed(table, written, count)
            shuffled, _ = replayed(accepted(head, target, written, other, count), written, count)
            lines.append(Line(temperature, count, tau, shuffled, tuple(places)))
    return lines


def main() -> None:
    """Print the lines as JSON."""
    parser = argparse.ArgumentParser(prog="python -m models.training.mtp_tau", description=__doc__)
    parser.add_argument("--folder", type=Path, default=PRESETS["hybrid"].out / "target")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    texts = json.loads((MODELS / "embedded" / "heldout_prompts.json").read_text(encoding="utf-8"))[: given.prompts]
    tokenizer = Tokenizer.from_file(str(given.folder / "tokenizer.json"))
    prompts = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    print(json.dumps([asdict(line) for line in measured(given.folder, prompts, given.tokens, (3, 7))], indent=1))


if __name__ == "__main__":
    main()
