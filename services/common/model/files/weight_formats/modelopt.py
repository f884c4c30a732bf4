"""ModelOpt's NVFP4: E2M1 codes, E4M3 scales of 16 columns, and a scale of the tensor that is multiplied by."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.model.fields.fields import Fields
from services.common.model.files.weight_format import Beside, Format, Kind, Shape, TensorPart, names, one_of, whole
from services.common.model.files.widen import fp4_numbers, nibbles, scaled

METHOD = "modelopt"
KINDS = (
    Kind("`modelopt`, `quant_algo` `NVFP4`", "`*-FP4`, `*-NVFP4`", "`FP8` (static scales), keys and values in FP8",
         ({"quant_method": METHOD, "quant_algo": "NVFP4"},)),
)  # fmt: skip
BESIDE = Beside("hf_quant_config.json", within="quantization")
_GROUP = 16
_REMEDY = "only NVFP4 is: take the compressed-tensors file of the model, or the original in bfloat16"
_SCHEME = "keys and values are kept in bfloat16: take a file without one"
_NONE = ("none", None)


@dataclass(frozen=True)
class Nvfp4:
    """Rows stay in bfloat16, so the scale of rows in four bits is left alone."""

    @property
    def summary(self) -> str:
        """The format and what shares a scale, in a line of the log."""
        return "NVFP4, weights only: activations stay in bfloat16"

    @property
    def ends(self) -> frozenset[str]:
        """The scales stand beside the codes."""
        return frozenset({"weight", "weight_scale", "weight_scale_2"}) | self.idle

    @property
    def idle(self) -> frozenset[str]:
        """The scale of activations."""
        return frozenset({"input_scale"})

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Bytes hold two columns."""
        outputs, depth = shape
        groups = whole(prefix, depth, _GROUP, "columns")
        return {
            "weight": TensorPart((outputs, depth // 2), frozenset({torch.uint8})),
            "weight_scale": TensorPart((outputs, groups), frozenset({torch.float8_e4m3fn})),
            "weight_scale_2": TensorPart((1,), frozenset({torch.float32})),
        }

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """Code times block's scale, which is exact, times the tensor's."""
        codes_FD = nibbles(parts["weight"])
        return scaled(
            codes_FD, parts["weight_scale"].float(), (1, _GROUP), numbers=fp4_numbers, factor=parts["weight_scale_2"]
        )


def read(fields: Fields) -> Format:
    """Read `quantization_config`.

    Raises:
        ModelError: it is of another algorithm, or a key is malformed or not understood.
    """
    one_of(fields, "quant_algo", ("nvfp4",), _REMEDY)
    one_of(fields, "kv_cache_quant_algo", _NONE, _SCHEME)
    one_of(fields, "kv_cache_scheme", _NONE, _SCHEME)
    one_of(fields, "group_size", (_GROUP, None), "groups of 16 are")
    for name in ("ignore", "exclude_modules"):
        names(fields, name)
    fields.finish(frozenset({"config_groups", "producer"}))
    return Nvfp4()
