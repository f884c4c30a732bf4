"""Keys of a GGUF file: each that is read has its type, and none asks for arithmetic that is not computed."""

import reprlib
from collections.abc import Mapping
from typing import Any

from services.common.gguf.file import GgufFile

_WORDS: Mapping[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}
_OF_TYPE: Mapping[type, tuple[str, ...]] = {
    str: ("general.architecture", "general.type", "tokenizer.chat_template", *(
        f"tokenizer.ggml.{name}" for name in ("model", "pre")
    )),
    int: ("split.count", *(
        f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eom", "eos", "eot", "padding", "unknown")
    )),
    bool: tuple(f"tokenizer.ggml.{name}" for name in ("add_bos_token", "add_eos_token", "add_space_prefix")),
}  # fmt: skip
_LISTS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tokenizer.ggml.tokens": ((str,), "a list of texts"),
    "tokenizer.ggml.merges": ((str,), "a list of texts"),
    "tokenizer.ggml.token_type": ((int,), "a list of whole numbers"),
    "tokenizer.ggml.scores": ((float, int), "a list of numbers"),
}
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.scale": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0,),
    "attn_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "expert_count": (0,),
    "final_logit_softcapping": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "rope.scaling.attn_factor": (0, 1),
    "rope.scaling.yarn_attn_factor": (-1, 1),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
    "use_parallel_residual": (False,),
}
"""Behind the architecture's name: values that change nothing. Another would make another model, and no error."""


def check_types(file: GgufFile) -> None:
    """Hold the keys that are read against their types; those that are absent are none of its matter.

    Raises:
        GgufError: one has another.
    """
    for kind, names in _OF_TYPE.items():
        for name in names:
            _check(file, name, (kind,), _WORDS[kind])
    for name, (kinds, words) in _LISTS.items():
        _check(file, name, kinds, words, several=True)


def check_arithmetic(file: GgufFile, near: bool) -> None:
    """Refuse keys that ask for what is not computed; with `near` the architecture has a sliding window.

    Raises:
        GgufError: one does.
    """
    prefix = file.keys["general.architecture"]
    for name, allowed in _NEUTRAL.items():
        value = file.keys.get(f"{prefix}.{name}", allowed[0])
        if type(value) is list or value not in allowed:
            only = " or ".join(str(one).lower() for one in allowed)
            raise file.error(f"{prefix}.{name}", f"{reprlib.repr(value)} is not supported, only {only} is")
    window, most = (file.keys.get(f"{prefix}.{name}", 0) for name in ("attention.sliding_window", "context_length"))
    if not near and window and not (type(window) is int and type(most) is int and window >= most):
        told = f"{reprlib.repr(window)} is not supported: this architecture sees its whole context here"
        raise file.error(f"{prefix}.attention.sliding_window", told)


def _check(file: GgufFile, name: str, kinds: tuple[type, ...], words: str, several: bool = False) -> None:
    value = file.keys.get(name)
    held: list[Any] = value if isinstance(value, list) else [value]
    if value is not None and (isinstance(value, list) != several or any(type(one) not in kinds for one in held)):
        raise file.error(name, f"must be {words}, is {reprlib.repr(value)}; fetch the file again, or take another")
