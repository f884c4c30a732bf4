"""python -m models.training.mtp: trains a drafting head for the embedded hybrid and writes it into the target's folder.

The head is that of Qwen3.5 (`mtp.*`): one layer over a product of a token's embedding and the target's last hidden
state. It is trained for steps on its own states, as EAGLE-3 is (arXiv:2503.01840), towards the target's distribution.
"""

import argparse
import json
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.training.blocks import Attention
from models.training.corpus import load_corpus
from models.training.export import write_manifest
from models.training.network import Layer, RMSNorm, Rotation, init_weights, rotate, rotation_at, round_weights
from models.training.optimizer import Optimizer
from models.training.settings import PRESETS, Shape
from models.training.target import Target
from models.training.tokenizer import encode_sources
from services.common.kernels.span_attention import plan_span
from services.common.model import Target as ServedTarget
from services.common.model import load_target as load_served
from services.common.model.states.states import Part, Rows

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
HEAD_FILE = "mtp.safetensors"
STEP_WEIGHTS = (0.51, 0.31, 0.18)
"""Of the losses of a chain's steps, as published."""
LENGTH = 128
"""Tokens of a text."""
ROWS, BLOCK = 32, 16
"""Texts that are read together, and tokens of a block of their K/V."""


class HeadLayer(Layer):
    """The one layer, of the target's kind."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.self_attn = Attention(shape)


class Head(nn.Module):
    """Its state dict is the published layout without `mtp.` in front."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, eps, offset = shape.hidden_size, shape.rms_norm_eps, shape.norm_offset
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.pre_fc_norm_embedding = RMSNorm(width, eps, offset)
        self.pre_fc_norm_hidden = RMSNorm(width, eps, offset)
        self.norm = RMSNorm(width, eps, offset)
        self.layers = nn.ModuleList([HeadLayer(shape)])
        init_weights(self)

    def begin(self, target: Target) -> None:
        """Start from the target's last layer, which the hidden half of the product passes on to."""
        last = target.model.layers[-1]
        with torch.no_grad():
            self.layers[0].load_state_dict(last.state_dict())
            self.fc.weight[:, self.fc.out_features :] += torch.eye(self.fc.out_features)

    def steps(self, embedded: Tensor, states: Tensor, rotation: Rotation, count: int) -> list[Tensor]:
        """Return the hidden states [batch, rows, width] of each step.

        Row p of step i is the i-th of a chain that begins i - 1 rows before: it has the token of its position, and the
        state of row p - 1 of the step before; `states` are the target's. It sees the target's rows up to the chain's
        beginning, and the chain's own.
        """
        layer, kept, outs = self.layers[0], list[tuple[Tensor, Tensor]](), list[Tensor]()
        assert isinstance(layer, HeadLayer)
        for _ in range(count):
            both = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states))
            stream = self.fc(torch.cat(both, -1))
            stream = stream + _attend(layer.self_attn, layer.input_layernorm(stream), rotation, kept)
            stream = stream + layer.mlp(layer.post_attention_layernorm(stream))
            hidden = self.norm(stream)
            outs.append(hidden)
            states = F.pad(hidden[:, :-1], (0, 0, 1, 0))
        return outs


def _attend(attention: Attention, x: Tensor, rotation: Rotation, kept: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Let each row see rows of the first step up to its chain's beginning, then those of its own chain."""
    k, v = attention.keys_values(x, rotation)
    kept.append((k.repeat_interleave(attention.groups, dim=1), v.repeat_interleave(attention.groups, dim=1)))
    q, gate = attention.q_proj(x).unflatten(-1, (-1, 2, attention.head_dim)).unbind(-2)
    q = rotate(attention.q_norm(q.transpose(1, 2)), rotation) * attention.head_dim**-0.5
    rows, step = x.shape[1], len(kept) - 1
    first_k, first_v = kept[0]
    places = torch.arange(rows)
    scores = [(q @ first_k.transpose(-1, -2)).masked_fill(places > places[:, None] - step, -1e9)]
    scores += [(q * _later(keys, step - index)).sum(-1, keepdim=True) for index, (keys, _) in enumerate(kept) if index]
    shares = torch.cat(scores, -1).float().softmax(-1).to(q.dtype)
    mixed = shares[..., :rows] @ first_v
    for index, (_, values) in enumerate(kept[1:], start=1):
        mixed = mixed + shares[..., rows + index - 1, None] * _later(values, step - index)
    mixed = mixed.transpose(1, 2) * torch.sigmoid(gate)
    out: Tensor = attention.o_proj(mixed.flatten(-2))
    return out


def _later(rows: Tensor, by: int) -> Tensor:
    """Return [..., rows, size] moved down, so that a row has that of `by` rows before."""
    return F.pad(rows, (0, 0, by, 0))[:, :, : rows.shape[2]] if by else rows


def chain_loss(head: Head, target: Target, ids: Tensor, hidden: Tensor, rotation: Rotation) -> Tensor:
    """Return the weighted cross-entropy of three steps towards the target's distribution.

    `ids` and `hidden` are rows of whole texts; row p of the head has the token at p and the state at p - 1.
    """
    table = target.model.embed_tokens.weight
    with torch.no_grad():
        wanted = F.linear(hidden[:, 1:], table).float().softmax(-1)
    states = head.steps(F.embedding(ids[:, 1:], table), hidden[:, :-1], rotation, len(STEP_WEIGHTS))
    total = hidden.new_zeros((), dtype=torch.float32)
    for step, (weight, rows) in enumerate(zip(STEP_WEIGHTS, states, strict=True)):
        guessed = F.linear(rows[:, step:], table).float().log_softmax(-1)
        total = total - weight * (wanted[:, step:] * guessed).sum(-1).mean()
    return total


@dataclass(frozen=True)
class Options:
    """Budgets of a run; `out` is the folder of the pair's target."""

    out: Path
    stdlib: Path
    tokens: int
    minutes: float
    rows: int = 24
    seed: int = 1


@torch.no_grad()
def read_texts(folder: Path, stream: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """Return texts [count, LENGTH] of the training data, and what the served target makes of them, float16."""
    served, generator = load_served(folder), torch.Generator().manual_seed(options.seed)
    read, started = list[tuple[Tensor, Tensor]](), time.monotonic()
    while len(read) * ROWS * LENGTH < options.tokens:
        places = torch.randint(len(stream) - LENGTH, (ROWS, 1), generator=generator)
        ids = stream[places + torch.arange(LENGTH)].long()
        read.append((ids, _hidden(served, ids)))
        print(f"read {len(read) * ROWS * LENGTH} tokens, {time.monotonic() - started:.0f} s", flush=True)
    texts, hidden = zip(*read, strict=True)
    return torch.cat(texts), torch.cat(hidden)


def _hidden(served: ServedTarget, ids: Tensor) -> Tensor:
    rows, length = ids.shape
    blocks, slots_B, valid = -(-length // BLOCK), torch.arange(rows), torch.full((rows,), length)
    states = served.new_states(rows * blocks + 1, BLOCK, slots=rows + 1, width=1)
    table_BN = torch.arange(1, rows * blocks + 1, dtype=torch.int32).view(rows, blocks)
    span = plan_span(table_BN, torch.zeros_like(valid), length, BLOCK, valid)
    return served.forward(ids.flatten(), Rows(Part(span, slots_B, valid)), states)[0].view(rows, length, -1).half()


def train(target: Target, texts: Tensor, hidden: Tensor, options: Options) -> Head:
    """Return the head after so many minutes."""
    torch.manual_seed(options.seed)
    head = Head(target.shape)
    head.begin(target)
    optimizer, rotation = Optimizer(head, 0.01, 0.001, 1.0), rotation_at(torch.arange(1, LENGTH), target.shape)
    started, step, progress, sums = time.monotonic(), 0, 0.0, list[float]()
    while progress < 1.0:
        rows = torch.randint(len(texts), (options.rows,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = chain_loss(head, target, texts[rows], hidden[rows].float(), rotation)
        step, reached = step + 1, (time.monotonic() - started) / (60.0 * options.minutes)
        scale = min(1.0, 0.1 + step / 40) * min(1.0, 1.6 * (1.0 - progress))
        progress = optimizer.step(loss, scale, reached)
        sums.append(float(loss.detach()))
        if step % 20 == 0:
            print(f"step {step}: loss {sum(sums[-20:]) / 20:.4f}, {progress:.0%}", flush=True)
    round_weights(head)
    return head


def save(head: Head, folder: Path) -> None:
    """Write the head beside the model's file, with an index of both, and the manifest."""
    tensors = {f"mtp.{name}": one.detach().bfloat16().contiguous() for name, one in head.state_dict().items()}
    save_file(tensors, folder / HEAD_FILE, metadata={"format": "pt"})
    names = dict.fromkeys(load_file(folder / FILE), FILE) | dict.fromkeys(tensors, HEAD_FILE)
    (folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": dict(sorted(names.items()))}, indent=1) + "\n"
    )
    write_manifest(folder)


def published_target(folder: Path) -> Target:
    """Return the frozen target of a folder."""
    target = Target(PRESETS["hybrid"].shape)
    target.load_state_dict({name: one.float() for name, one in load_file(folder / FILE).items()}, strict=True)
    return target.requires_grad_(False).eval()


def main() -> None:
    """Read texts, train, and save."""
    parser = argparse.ArgumentParser(prog="python -m models.training.mtp", description=__doc__)
    parser.add_argument("--out", type=Path, default=PRESETS["hybrid"].out / "target")
    parser.add_argument("--stdlib", type=Path, default=Path(sysconfig.get_path("stdlib")))
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args()
    options = Options(given.out, given.stdlib, given.tokens, given.minutes)
    target = published_target(options.out)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    stream = encode_sources(tokenizer, load_corpus(options.stdlib).train, target.shape.eos_token_id)
    save(train(target, *read_texts(options.out, stream, options), options), options.out)


if __name__ == "__main__":
    main()
