"""The drafting head that Qwen3.5 and its successors carry in their own file (`mtp.*`): multi-token prediction.

One layer of the target's kind over a product of the token's embedding and the target's last hidden state. It shares the
target's embedding and head. Its file is the target's own.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from services.common.model.drafters.chain_cell import ChainParts, Whole, norm_of, product_of
from services.common.model.drafters.spec import ChainSpec
from services.common.model.drafters.speculators import TYPE
from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import CONFIG_FILE, IntegerSource
from services.common.model.files.weight_formats import KEY
from services.common.model.reading.hybrid import read_hybrid
from services.common.model.reading.part import PartOf
from services.common.model.spec import LayerSpec
from services.common.model.weights.weights import Shapes, layer_shapes, read_layer

ARCHITECTURES = ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration")
_APART = "a drafting head in a folder of its own is not supported: take the target's own folder (--drafter mtp)"
_EXPERTS = "a drafting head with experts is not supported: take a DFlash drafter, or n-gram drafts"
_OTHERS = "drafting heads of this family are not supported: take a drafter of its own, or n-gram drafts"
REFUSED = {
    "Qwen3_5MTP": _APART,
    "Qwen3_5MTPDraftModel": _APART,
    "Qwen3_5MoeMTP": _EXPERTS,
    "Qwen3NextMTP": _EXPERTS,
    "DeepSeekMTPModel": _OTHERS,
    "Glm4MoeMTPModel": _OTHERS,
    "MiMoMTPModel": _OTHERS,
    "Qwen3_5MoeForCausalLM": _EXPERTS,
    "Qwen3_5MoeForConditionalGeneration": _EXPERTS,
    "Qwen3NextForCausalLM": _EXPERTS,
    "DeepseekV3ForCausalLM": _OTHERS,
    "Glm4MoeForCausalLM": _OTHERS,
    "MiMoForCausalLM": _OTHERS,
}
TABLES: tuple[str, ...] = ()
_START, _LAYER = "mtp.", "mtp.layers.0"
_FC, _EMBEDDING, _HIDDEN, _NORM = (
    f"mtp.{name}.weight" for name in ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
)
_COUNT, _DEDICATED = "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"


class FusedEntry(nn.Module):
    """One product of both norms becomes the residual stream, whose norm enters attention."""

    def __init__(self, spec: ChainSpec, fc_DF: Tensor, norms_3D: tuple[Tensor, Tensor, Tensor]) -> None:
        """`norms_3D` are those of embeddings, of states, and of the layer."""
        super().__init__()
        self.fc = product_of(fc_DF)
        self.of_embedding, self.of_hidden, self.of_input = (
            norm_of(weight_D, spec.norm_eps, spec.norm_offset) for weight_D in norms_3D
        )

    def forward(self, embedded_TD: Tensor, before_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return what enters attention, and the stream."""
        stream_TD: Tensor = self.fc(torch.cat((self.of_embedding(embedded_TD), self.of_hidden(before_TD)), -1))
        entered_TD: Tensor = self.of_input(stream_TD)
        return entered_TD, stream_TD


def translated(folder: Path) -> Fields:
    """Refuse the speculators library's file, which holds the head apart from the target.

    Raises:
        ModelError: always.
    """
    raise ModelError(f"{folder / CONFIG_FILE}: {TYPE}: 'mtp': {_APART}")


def read_spec(fields: Fields) -> ChainSpec:
    """Read what the target's config.json says of its drafting head; the target's reader has judged all other keys.

    Raises:
        ModelError: the head is of a shape that is not implemented, or its file is packed.
    """
    text = fields.nested("text_config") or fields
    for holder in (fields, text):
        if holder.take(KEY, (dict, type(None)), default=None):
            raise holder.error(KEY, "a drafting head in a packed file is not supported: take another drafter")
        if holder.take(_DEDICATED, (bool, type(None)), default=None):
            raise holder.error(_DEDICATED, "true is not supported: take another drafter")
        if (count := holder.take(_COUNT, (int, type(None)), default=None)) not in (1, None):
            raise holder.error(_COUNT, f"only one layer is supported, is {count}: take another drafter")
    stack = read_hybrid(text)
    layer = LayerSpec(stack.attention, stack.layers[-1].ffn)
    return ChainSpec(
        **vars(stack) | {"layers": (layer,)},
        target_layer_ids=(len(stack.layers) - 1,),
        num_target_layers=len(stack.layers),
    )


def entry_shapes(spec: ChainSpec) -> Shapes:
    """Return the tensors in front of attention."""
    width = spec.hidden_size
    norms = (_EMBEDDING, _HIDDEN, f"{_LAYER}.input_layernorm.weight")
    return {_FC: (width, 2 * width), **dict.fromkeys(norms, (width,))}


def shapes(spec: ChainSpec) -> Shapes:
    """Return the shapes of all tensors that a checkpoint of this kind must have."""
    layer = layer_shapes(spec.layers[0], spec.hidden_size, _LAYER)
    return entry_shapes(spec) | layer | {_NORM: (spec.hidden_size,)}


def own(checkpoint: IntegerSource) -> IntegerSource:
    """Return the head's tensors among the target's.

    Raises:
        ModelError: there are none.
    """
    part = PartOf(checkpoint, _START)
    if checkpoint.names and not part.names:
        told = "has no drafting head (mtp.*), which copies often leave out: take the original, or n-gram drafts"
        raise ModelError(f"{checkpoint.folder}: {told}")
    return part


def read_parts(spec: ChainSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> ChainParts:
    """Read the head.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    known = shapes(spec)
    layer = read_layer(checkpoint, spec.layers[0], spec.hidden_size, _LAYER, dtype, device)
    fc_DF, embedding_D, hidden_D, norm_D = (
        checkpoint.read(name, known[name], dtype).to(device) for name in (_FC, _EMBEDDING, _HIDDEN, _NORM)
    )
    norms = (embedding_D, hidden_D, layer.input_norm_D)
    return ChainParts(
        fuse=Whole(),
        entry=FusedEntry(spec, fc_DF, norms),
        layer=layer,
        norm_D=norm_D,
        recycles_normed=True,
    )
