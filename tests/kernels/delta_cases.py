"""Kernels of Gated DeltaNet as an H200's compiler takes them."""

from typing import Any

from services.common.kernels.gated_delta import norm, prepare, scan

_SIZES = {
    "stride_channel": 1,
    "RING": 27,
    "TAPS": 2,
    "K_HEADS": 1,
    "HEADS": 2,
    "K_DIM": 16,
    "V_DIM": 16,
    "COLUMNS": 16,
    "NORMED": False,
    "FEW": True,
    "FEATURES": 100,
    "KEPT": 68,
    "ROWS": 4,
    "PDL": True,
}
_TYPES = {
    "into_ptr": "*bf16", "ring_ptr": "*bf16", "folded_ptr": "*i64", "bias_ptr": "*fp32", "factor_ptr": "*fp16",
    "key_ptr": "*fp16",
}  # fmt: skip


def _case(function: Any, **flags: Any) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Of Gated DeltaNet, at the least size that its products allow: the compiler is slow at it."""
    return function, {name: value for name, value in (_SIZES | flags).items() if name in function.arg_names}, _TYPES


DELTA_CASES = (
    _case(prepare.prepare_kernel),
    _case(scan.scan_kernel),
    _case(scan.scan_kernel, valid_ptr=None, NORMED=True),
    *(_case(norm.norm_kernel, **flags) for flags in ({}, {"valid_ptr": None, "ROWS": 1})),
)
