"""Triton's interpreter, where it runs the kernels, without what it does again and again to no end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.kernels.gpu.devices import INTERPRETED
from tests.support.covering import keep_covering

CONTAINED = (
    "test_windowed_model.py::test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path[gemma 3-",
    "test_windowed_model.py::test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path[gemma 4-",
    "test_expert_model.py::test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path[qwen3_moe-",
    "test_windowed_model.py::test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path[laguna-",
    "test_hybrid_model.py::test_rows_have_the_same_bits_in_any_cut_and_are_close_to_the_cpu_path[",
    "test_model.py::test_a_pair_gives_the_same_by_kernels[llama]",
    "test_expert_memory.py::test_rows_have_the_bits_of_experts_on_the_device[1-",
    "test_attention_shares.py::test_any_number_of_programs_may_share_the_splits[False-0-",
    "test_attention_shares.py::test_any_number_of_programs_may_share_the_splits[True-70-",
)
"""Whole models and spans whose kernels others launch too: with experts beside, with a bias, with the other's window."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The interpreter takes each value of each parameter once, with --full and on a GPU all of their product."""
    if not INTERPRETED or config.getoption("full"):
        return
    keep_covering(config, items)
    left_out = [item for item in items if any(name in item.nodeid for name in CONTAINED)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=INTERPRETED)
def brisk_interpreter(full: bool) -> Iterator[None]:
    """Puts the interpreted operators in place once, and looks for overflows in the whole sweep alone.

    The interpreter looks through the whole language at every launch, and at every call of one kernel's function by
    another, and finds what the first launch has put there. It computes each sum and product of 32-bit integers a second
    time in 64. It makes the same shapes and types anew for every result, and converts operands of one type to it.
    """
    from triton.runtime import interpreter

    with pytest.MonkeyPatch.context() as patch:
        _patch_once(interpreter, patch)
        _keep_shapes_and_types(interpreter, patch)
        _take_operands_as_they_are(interpreter, patch)
        options = interpreter.InterpreterOptions(sanitize_overflow=full)
        patch.setattr(interpreter.interpreter_builder, "options", options)
        yield


def _patch_once(interpreter: Any, patch: pytest.MonkeyPatch) -> None:
    """What is put in place stays: these processes interpret and do nothing else with the language."""
    put_in_place: Callable[[Any], Any] = interpreter._patch_lang
    present: set[frozenset[int]] = set()
    nothing = interpreter._LangPatchScope()

    @cache
    def languages_of(function: Any) -> frozenset[int]:
        languages = (interpreter.tl, interpreter.tl.core)
        return frozenset(id(value) for value in function.__globals__.values() if any(value is one for one in languages))

    def once(function: Any) -> Any:
        asked = languages_of(function)
        if asked not in present:
            present.add(asked)
            put_in_place(function)
        return nothing

    patch.setattr(interpreter, "_patch_lang", once)


def _take_operands_as_they_are(interpreter: Any, patch: pytest.MonkeyPatch) -> None:
    """Two operands of one type stay of it, unless they are divided; most operands are such."""
    core, semantics = interpreter.tl.core, interpreter.TritonSemantic
    plain = {id(kind) for kind in (core.float64, core.float32, core.bfloat16, core.int64, core.int32, core.int1)}
    tensor, check = core.tensor, semantics.binary_op_type_checking_impl

    def operands(semantic: Any, left: Any, right: Any, *flags: bool, **named: bool) -> Any:
        """As Triton's; the flags are whether pointers are allowed left and right, whether it adds, and divides."""
        if type(left) is tensor and type(right) is tensor and len(flags) < 4 and not named:
            kind = left.dtype
            if kind is right.dtype and id(kind) in plain:
                return semantic.broadcast_impl_value(left, right)
        return check(semantic, left, right, *flags, **named)

    patch.setattr(semantics, "binary_op_type_checking_impl", operands)


def _keep_shapes_and_types(interpreter: Any, patch: pytest.MonkeyPatch) -> None:
    core = interpreter.tl.core
    number_of, pointer = cache(interpreter._get_np_dtype), interpreter._get_np_dtype(core.pointer_type(core.int8))

    scalar = core.tuple([]), core.constexpr(1)

    @cache
    def shaped(sizes: tuple[int, ...]) -> tuple[Any, Any, int, str]:
        numel = core.validate_block_shape(core.tuple([*sizes]))
        of_results = core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(math.prod(sizes))
        return core.tuple([*sizes]), of_results, numel, f"{core.tuple([*sizes])}"

    def block(kind: Any, element: Any, shape: Any) -> None:
        """Blocks of the same sizes have the very same shape."""
        values = shape.values if isinstance(shape, core.tuple) else shape
        sizes = tuple([size.value if isinstance(size, core.constexpr) else size for size in values])
        if not sizes:
            raise TypeError("0d block_type is forbidden")
        kind.element_ty = element
        kind.shape, kind.of_results, kind.numel, said = shaped(sizes)
        kind.name = f"<{said}, {element}>"

    def hold(result: Any, handle: Any, kind: Any) -> None:
        result.handle, result.type, result.dtype = handle, kind, kind.scalar
        result.shape, result.numel = kind.of_results if kind.is_block() else scalar

    semantics = interpreter.TritonSemantic
    broadcast = semantics.broadcast_impl_value

    def alike(semantic: Any, left: Any, right: Any) -> Any:
        """Most have one shape, so that nothing is to be done."""
        kinds = left.type, right.type
        same = kinds[0].is_block() and kinds[1].is_block() and kinds[0].shape is kinds[1].shape
        return (left, right) if same else broadcast(semantic, left, right)

    def number(kind: Any) -> Any:
        return pointer if kind.scalar.is_ptr() else number_of(kind.scalar)

    equal = core.dtype.__eq__
    patch.setattr(core.dtype, "__eq__", lambda one, other: one is other or equal(one, other))
    patch.setattr(core.tensor, "__init__", hold)
    patch.setattr(core.block_type, "__init__", block)
    patch.setattr(semantics, "broadcast_impl_value", alike)
    patch.setattr(interpreter, "_get_np_dtype", number)
