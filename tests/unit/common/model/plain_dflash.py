"""A DFlash drafter written straight from its description, with no cache, no paging and no fused weight."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


class PlainDflash:
    """Weights by their published names; every context row is projected again at every call."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: value.to(dtype) for name, value in load_file(folder / "model.safetensors").items()}

    def hidden(self, features_PF: Tensor, anchor: int, embed_VD: Tensor, block: int) -> Tensor:
        """Return the block's normalised hidden states [block, D]; the anchor's position is len(features)."""
        w, count = self.weights, len(features_PF)
        context_PD = self.norm(features_PF @ w["fc.weight"].T, w["hidden_norm.weight"])
        ids = [anchor] + [self.config["dflash_config"]["mask_token_id"]] * (block - 1)
        x_BD = embed_VD[ids]
        for layer in range(self.config["num_hidden_layers"]):
            own = f"layers.{layer}."
            normed_BD = self.norm(x_BD, w[own + "input_layernorm.weight"])
            x_BD = x_BD + self.attention(own + "self_attn.", normed_BD, context_PD, count)
            inner_BD = self.norm(x_BD, w[own + "post_attention_layernorm.weight"])
            gate = inner_BD @ w[own + "mlp.gate_proj.weight"].T
            up = inner_BD @ w[own + "mlp.up_proj.weight"].T
            x_BD = x_BD + (gate * torch.sigmoid(gate) * up) @ w[own + "mlp.down_proj.weight"].T
        return self.norm(x_BD, w["norm.weight"])

    def attention(self, own: str, normed_BD: Tensor, context_PD: Tensor, count: int) -> Tensor:
        w, head = self.weights, self.config["head_dim"]
        rows_TD = torch.cat((context_PD, normed_BD))
        positions_T = torch.arange(len(rows_TD))
        q_BHD = self.heads(normed_BD @ w[own + "q_proj.weight"].T, w[own + "q_norm.weight"], positions_T[count:])
        k_THD = self.heads(rows_TD @ w[own + "k_proj.weight"].T, w[own + "k_norm.weight"], positions_T)
        v_THD = (rows_TD @ w[own + "v_proj.weight"].T).view(len(rows_TD), -1, head)
        group = q_BHD.shape[1] // k_THD.shape[1]
        outs = []
        for index in range(q_BHD.shape[1]):
            scores_BT = q_BHD[:, index] @ k_THD[:, index // group].T / head**0.5
            outs.append(scores_BT.softmax(-1) @ v_THD[:, index // group])
        mixed: Tensor = torch.cat(outs, -1) @ w[own + "o_proj.weight"].T
        return mixed

    def heads(self, flat: Tensor, weight: Tensor, positions_T: Tensor) -> Tensor:
        """Split into heads, normalise, and turn pairs (i, i + D / 2) as complex numbers."""
        size = self.config["head_dim"]
        x_THD = self.norm(flat.view(len(flat), -1, size), weight)
        turns = self.config["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle_T1D = (positions_T[:, None].double() * turns)[:, None].to(x_THD.dtype)
        pair = torch.complex(x_THD[..., : size // 2], x_THD[..., size // 2 :])
        pair = pair * torch.polar(torch.ones_like(angle_T1D), angle_T1D)
        return torch.cat((pair.real, pair.imag), -1)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        eps: float = self.config["rms_norm_eps"]
        return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
