"""A DFlash drafter written straight from its description, with no cache, no paging and no fused weight."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

CAP = "final_logit_softcapping"


class PlainDflash:
    """Weights by their published names; every context row is projected again at every call.

    Of layers that slide, a row at position q sees the positions p with q - window < p, and of its block those up to q.
    """

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: value.to(dtype) for name, value in load_file(folder / "model.safetensors").items()}

    def hidden(self, features_PF: Tensor, anchor: int, embed_VD: Tensor, block: int) -> Tensor:
        """Return the block's normalised hidden states [block, D]; the anchor's position is len(features)."""
        w, count = self.weights, len(features_PF)
        context_PD = self.norm(self.taken(features_PF) @ w["fc.weight"].T, w["hidden_norm.weight"])
        ids = [anchor] + [self.said("mask_token_id")] * (block - 1)
        x_BD = embed_VD[ids] * self.said("input_embedding_scale", 1.0)
        for layer in range(self.config["num_hidden_layers"]):
            own = f"layers.{layer}."
            normed_BD = self.norm(x_BD, w[own + "input_layernorm.weight"])
            before_BD = self.around(own + "attention_conv.", 0, normed_BD, normed_BD)
            mixed_BD = self.attention(own + "self_attn.", before_BD, context_PD, self.sees(layer, count, block))
            x_BD = x_BD + self.around(own + "attention_conv.", 1, normed_BD, mixed_BD)
            normed_BD = self.norm(x_BD, w[own + "post_attention_layernorm.weight"])
            inner_BD = self.around(own + "mlp_conv.", 0, normed_BD, normed_BD)
            gate = inner_BD @ w[own + "mlp.gate_proj.weight"].T
            up = inner_BD @ w[own + "mlp.up_proj.weight"].T
            fed_BD = (gate * torch.sigmoid(gate) * up) @ w[own + "mlp.down_proj.weight"].T
            x_BD = x_BD + self.around(own + "mlp_conv.", 1, normed_BD, fed_BD)
        return self.norm(x_BD, w["norm.weight"])

    def around(self, own: str, side: int, normed_BD: Tensor, rows_BD: Tensor) -> Tensor:
        """What a convolution makes of rows; the first generation has none."""
        return rows_BD

    def taken(self, features_PF: Tensor) -> Tensor:
        """The features as `fc` takes them."""
        return features_PF

    def before_layer(self, own: str, context_PD: Tensor) -> Tensor:
        """The context as a layer's keys and values take it."""
        return context_PD

    def gated(self, own: str, normed_BD: Tensor, mixed_BF: Tensor) -> Tensor:
        """Mixed rows before their product."""
        return mixed_BF

    def drafts(self, hidden_BD: Tensor, anchor: int, lm_head_VD: Tensor) -> list[int]:
        """The greedy drafts of a block."""
        return self.logits(hidden_BD[1:], lm_head_VD).argmax(-1).tolist()

    def said(self, name: str, default: Any = None) -> Any:
        """A key's value in `dflash_config`, or beside it."""
        return self.config.get("dflash_config", {}).get(name, self.config.get(name, default))

    def logits(self, hidden_BD: Tensor, lm_head_VD: Tensor) -> Tensor:
        scores_BV, cap = hidden_BD @ lm_head_VD.T * self.said("output_multiplier", 1.0), self.said(CAP)
        capped_BV: Tensor = (scores_BV / cap).tanh() * cap if cap else scores_BV
        return capped_BV

    def sees(self, layer: int, count: int, block: int) -> Tensor:
        """Which of context and block each row of the block sees, position by position."""
        kinds = self.config.get("layer_types")
        slides = kinds is not None and kinds[layer] == "sliding_attention"
        causal = self.config.get("is_causal", slides)
        window = self.config["sliding_window"] if slides else count + block
        rows = [[(p <= q or (p >= count and not causal)) and q - p < window for p in range(count + block)]
                for q in range(count, count + block)]  # fmt: skip
        return torch.tensor(rows)

    def attention(self, own: str, normed_BD: Tensor, context_PD: Tensor, sees_BT: Tensor) -> Tensor:
        w, head, count = self.weights, self.config["head_dim"], len(context_PD)
        rows_TD = torch.cat((self.before_layer(own, context_PD), normed_BD))
        positions_T = torch.arange(len(rows_TD))
        q_BHD = self.heads(normed_BD @ w[own + "q_proj.weight"].T, w[own + "q_norm.weight"], positions_T[count:])
        k_THD = self.heads(rows_TD @ w[own + "k_proj.weight"].T, w[own + "k_norm.weight"], positions_T)
        v_THD = (rows_TD @ w[own + "v_proj.weight"].T).view(len(rows_TD), -1, head)
        group = q_BHD.shape[1] // k_THD.shape[1]
        outs = []
        for index in range(q_BHD.shape[1]):
            scores_BT = q_BHD[:, index] @ k_THD[:, index // group].T / head**0.5
            outs.append(torch.where(sees_BT, scores_BT, -torch.inf).softmax(-1) @ v_THD[:, index // group])
        mixed: Tensor = self.gated(own, normed_BD, torch.cat(outs, -1)) @ w[own + "o_proj.weight"].T
        return mixed

    def heads(self, flat: Tensor, weight: Tensor, positions_T: Tensor) -> Tensor:
        """Split into heads, normalise, and turn pairs (i, i + D / 2) as complex numbers."""
        size = self.config["head_dim"]
        x_THD = self.norm(flat.view(len(flat), -1, size), weight)
        theta = self.config.get("rope_parameters", self.config)["rope_theta"]
        turns = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle_T1D = (positions_T[:, None].double() * turns)[:, None].to(x_THD.dtype)
        pair = torch.complex(x_THD[..., : size // 2], x_THD[..., size // 2 :])
        pair = pair * torch.polar(torch.ones_like(angle_T1D), angle_T1D)
        return torch.cat((pair.real, pair.imag), -1)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        eps: float = self.config["rms_norm_eps"]
        return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
