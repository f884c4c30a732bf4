"""Chains of drafts, written straight from their descriptions: one token, one head at a time, nothing kept."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor


class PlainChain:
    """Weights by their published names. A row at position q has the token there, and the state of q - 1.

    `states_PD` are what the target's features make; position 0 has no state before it, so rows begin at 1.
    """

    offset = 0.0

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        config = json.loads((folder / "config.json").read_text())
        inner = config.get("text_config", config.get("transformer_layer_config", {}))
        self.config: dict[str, Any] = config | config.get("eagle_config", {}) | inner
        loaded: dict[str, Tensor] = {}
        for path in folder.glob("*.safetensors"):
            loaded |= load_file(path)
        self.weights = {name: value.to(dtype) if value.is_floating_point() else value for name, value in loaded.items()}
        self.layer = next((name for name in ("mtp.layers.0", "midlayer") if f"{name}.mlp.up_proj.weight" in loaded),
                          "layers.0")  # fmt: skip

    def taps(self, layers: int) -> tuple[int, ...]:
        """Blocks of a target of so many whose outputs are the features."""
        raise NotImplementedError

    def states(self, features_PF: Tensor) -> Tensor:
        """What the target's features become."""
        raise NotImplementedError

    def entry(self, embedded_D: Tensor, before_D: Tensor) -> tuple[Tensor, Tensor]:
        """What queries, keys and values are products of, and the residual stream."""
        raise NotImplementedError

    def ends(self, stream_D: Tensor) -> tuple[Tensor, Tensor]:
        """What the head scores, and the next state."""
        raise NotImplementedError

    def token(self, hidden_D: Tensor, head_VD: Tensor) -> int:
        """The best token."""
        return int((head_VD @ hidden_D).argmax())

    def drafts(
        self, ids: list[int], features_PF: Tensor, embed_VD: Tensor, head_VD: Tensor, count: int
    ) -> tuple[list[int], list[Tensor]]:
        """Drafts behind the last of `ids`, whose features end one position before it; and what the head scored."""
        states, ids, hidden = list(self.states(features_PF)), list(ids), []
        assert len(states) == len(ids) - 1
        for _ in range(count):
            rows = [self.entry(embed_VD[ids[q]], states[q - 1]) for q in range(1, len(ids))]
            stream_D = rows[-1][1] + self.attention([entered for entered, _ in rows])
            inner = self.norm(stream_D, self.own("post_attention_layernorm"))
            gate, up = self.own("mlp.gate_proj") @ inner, self.own("mlp.up_proj") @ inner
            stream_D = stream_D + self.own("mlp.down_proj") @ (gate * torch.sigmoid(gate) * up)
            scored_D, state_D = self.ends(stream_D)
            hidden.append(scored_D)
            states.append(state_D)
            ids.append(self.token(scored_D, head_VD))
        return ids[-count:], hidden

    def attention(self, entered: list[Tensor]) -> Tensor:
        """Of the last row to all rows; the first of them is at position 1."""
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size, outs = self.config["head_dim"], []
        queries_HD, gate_HD = self.queries(entered[-1], heads, size)
        for head in range(heads):
            group = head // (heads // kv_heads)
            query_D = self.turned(self.head_norm(queries_HD[head], "q_norm"), len(entered))
            scores, values = [], []
            for position, row in enumerate(entered, start=1):
                key_D = self.line("k_proj", row).view(kv_heads, size)[group]
                scores.append(query_D @ self.turned(self.head_norm(key_D, "k_norm"), position) / size**0.5)
                values.append(self.line("v_proj", row).view(kv_heads, size)[group])
            mixed_D = torch.stack(scores).softmax(0) @ torch.stack(values)
            outs.append(mixed_D if gate_HD is None else mixed_D * torch.sigmoid(gate_HD[head]))
        return self.own("self_attn.o_proj") @ torch.cat(outs)

    def queries(self, row: Tensor, heads: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Of each head, and its gate."""
        return self.line("q_proj", row).view(heads, size), None

    def line(self, name: str, row: Tensor) -> Tensor:
        """A product of attention, with its bias."""
        bias = self.weights.get(f"{self.layer}.self_attn.{name}.bias")
        out = self.own(f"self_attn.{name}") @ row
        return out if bias is None else out + bias

    def head_norm(self, x_D: Tensor, name: str) -> Tensor:
        """Normalised, where the file has norms of heads."""
        weight = self.weights.get(f"{self.layer}.self_attn.{name}.weight")
        return x_D if weight is None else self.norm(x_D, weight)

    def turned(self, x_D: Tensor, position: int) -> Tensor:
        """Pairs (i, i + half) of the part that turns, as complex numbers."""
        said = self.config.get("rope_parameters", self.config)
        size = round(len(x_D) * said.get("partial_rotary_factor", 1.0))
        turns = said["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size) * position
        pair = torch.complex(x_D[: size // 2].double(), x_D[size // 2 : size].double())
        pair = pair * torch.polar(torch.ones_like(turns), turns)
        turned_D: Tensor = torch.cat((pair.real, pair.imag, x_D[size:].double())).to(x_D.dtype)
        return turned_D

    def norm(self, x_D: Tensor, weight_D: Tensor) -> Tensor:
        eps: float = self.config["rms_norm_eps"]
        return (weight_D + self.offset) * x_D / (x_D.square().mean() + eps).sqrt()

    def own(self, name: str) -> Tensor:
        """A tensor of the layer."""
        weight: Tensor = self.weights[f"{self.layer}.{name}.weight"]
        return weight


class PlainMtp(PlainChain):
    """The head in a hybrid's own file: norms are centred on zero, queries come with their gates."""

    offset = 1.0

    def taps(self, layers: int) -> tuple[int, ...]:
        """The last one, normalised."""
        return (layers - 1,)

    def states(self, features_PF: Tensor) -> Tensor:
        """The hidden states behind the target's last norm."""
        return features_PF

    def entry(self, embedded_D: Tensor, before_D: Tensor) -> tuple[Tensor, Tensor]:
        """One product of both norms; the embedding comes first."""
        w = self.weights
        both = (self.norm(embedded_D, w["mtp.pre_fc_norm_embedding.weight"]),
                self.norm(before_D, w["mtp.pre_fc_norm_hidden.weight"]))  # fmt: skip
        stream_D = w["mtp.fc.weight"] @ torch.cat(both)
        return self.norm(stream_D, self.own("input_layernorm")), stream_D

    def ends(self, stream_D: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised once, for the head and for the next step."""
        hidden_D = self.norm(stream_D, self.weights["mtp.norm.weight"])
        return hidden_D, hidden_D

    def queries(self, row: Tensor, heads: int, size: int) -> tuple[Tensor, Tensor | None]:
        """A head's gate stands behind its queries."""
        both_H2D = self.line("q_proj", row).view(heads, 2, size)
        return both_H2D[:, 0], both_H2D[:, 1]


class PlainEagle3(PlainChain):
    """Attention reads two rows side by side; the head scores its own tokens, each so far from one of the target's."""

    def taps(self, layers: int) -> tuple[int, ...]:
        """Ids name the layers before which streams are read; DeepSpec's those behind which."""
        if "target_layer_ids" in self.config:
            return tuple(self.config["target_layer_ids"])
        ids = self.config.get("eagle_aux_hidden_state_layer_ids", (2, layers // 2, layers - 3))
        return tuple(one - 1 for one in ids)

    def states(self, features_PF: Tensor) -> Tensor:
        """One product of all streams."""
        w, rows = self.weights, list(features_PF)
        if self.config.get("norm_before_fc"):
            rows = [self.norm(row, w["input_norm.weight"]) for row in rows]
        return torch.stack([w["fc.weight"] @ row for row in rows])

    def entry(self, embedded_D: Tensor, before_D: Tensor) -> tuple[Tensor, Tensor]:
        """Both norms; the stream is the state, or its norm."""
        hidden_D = self.norm(before_D, self.own("hidden_norm"))
        entered = torch.cat((self.norm(embedded_D, self.own("input_layernorm")), hidden_D))
        return entered, hidden_D if self.config.get("norm_before_residual") else before_D

    def ends(self, stream_D: Tensor) -> tuple[Tensor, Tensor]:
        """The head's row is normalised, the next state only where the file says so."""
        hidden_D = self.norm(stream_D, self.weights["norm.weight"])
        return hidden_D, hidden_D if self.config.get("norm_output") else stream_D

    def token(self, hidden_D: Tensor, head_VD: Tensor) -> int:
        """By the file's own head and vocabulary."""
        best = int((self.weights.get("lm_head.weight", head_VD) @ hidden_D).argmax())
        return best + int(self.weights["d2t"][best]) if "d2t" in self.weights else best


PLAIN_CHAINS: dict[str, type[PlainChain]] = {"mtp": PlainMtp, "eagle3": PlainEagle3}
