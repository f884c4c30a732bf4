"""Later kinds of drafters, written straight from their descriptions: one number, one row, one token at a time."""

import torch
from torch import Tensor

from tests.unit.common.model.plain_dflash import PlainDflash


class PlainDspark(PlainDflash):
    """The anchor's row predicts too, and each row's logits are biased by the token before."""

    def drafts(self, hidden_BD: Tensor, anchor: int, lm_head_VD: Tensor) -> list[int]:
        first_VR, second_VR = (self.weights[f"markov_head.markov_w{index}.weight"] for index in (1, 2))
        drafts: list[int] = []
        for row_D in hidden_BD:
            before = drafts[-1] if drafts else anchor
            drafts.append(int((lm_head_VD @ row_D + second_VR @ first_VR[before]).argmax()))
        return drafts

    def confidence(self, row_D: Tensor, before: int) -> float:
        weight_F, bias = self.weights["confidence_head.proj.weight"][0], self.weights["confidence_head.proj.bias"]
        inputs_F = torch.cat((row_D, self.weights["markov_head.markov_w1.weight"][before]))
        return float(1.0 / (1.0 + torch.exp(-(weight_F @ inputs_F + bias[0]))))


class PlainDflash2(PlainDflash):
    """Convolutions around the sublayers, and a selector behind the head."""

    def around(self, own: str, side: int, normed_BD: Tensor, rows_BD: Tensor) -> Tensor:
        base_2KD, size = self.weights[own + "base_kernel"], self.said("conv_group_size")
        taps, width = base_2KD.shape[1:]
        delta_BF = normed_BD @ self.weights[own + "kernel_projection.weight"].T
        delta_B2KG = delta_BF.view(len(rows_BD), 2, taps, width // size)
        out_BD = torch.zeros_like(rows_BD)
        for row in range(len(rows_BD)):
            for tap in range(min(taps, row + 1)):
                for column in range(width):
                    kernel = base_2KD[side, tap, column] + delta_B2KG[row, side, tap, column // size]
                    out_BD[row, column] += kernel * rows_BD[row - tap, column]
        return out_BD

    def drafts(self, hidden_BD: Tensor, anchor: int, lm_head_VD: Tensor) -> list[int]:
        before_VR = self.weights["candidate_selector.predecessor_codebook"]
        after_VR = self.weights["candidate_selector.successor_codebook"]
        drafts: list[int] = []
        for row_D in hidden_BD[1:]:
            logits_V = self.logits(row_D, lm_head_VD)
            own_R = self.weights["candidate_selector.hidden_projection.weight"] @ row_D
            own_R = own_R * before_VR[drafts[-1] if drafts else anchor]
            scores = {one: float(logits_V[one] + own_R @ after_VR[one])
                      for one in logits_V.topk(self.said("selector_top_k")).indices.tolist()}  # fmt: skip
            drafts.append(min(scores, key=lambda one: (-scores[one], one)))
        return drafts


class PlainGated(PlainDflash):
    """Norms of taps and of what layers take of the context, and gates of heads."""

    def taken(self, features_PF: Tensor) -> Tensor:
        taps = features_PF.chunk(len(self.said("target_layer_ids")), -1)
        normed = [self.norm(tap, self.weights[f"aux_hidden_norms.{index}.weight"]) for index, tap in enumerate(taps)]
        return torch.cat(normed, -1)

    def before_layer(self, own: str, context_PD: Tensor) -> Tensor:
        return self.norm(context_PD, self.weights[own.replace("self_attn", "input_layernorm") + "weight"])

    def gated(self, own: str, normed_BD: Tensor, mixed_BF: Tensor) -> Tensor:
        gate_BH: Tensor = torch.log(1.0 + torch.exp(normed_BD @ self.weights[own + "g_proj.weight"].T))
        gated_BHD: Tensor = mixed_BF.unflatten(1, (gate_BH.shape[1], -1)) * gate_BH[:, :, None]
        return gated_BHD.flatten(1)


PLAIN: dict[str, type[PlainDflash]] = {
    "dflash": PlainDflash,
    "dflash_gated": PlainGated,
    "dspark": PlainDspark,
    "dflash2": PlainDflash2,
}
