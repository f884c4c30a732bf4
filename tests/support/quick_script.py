"""A pytest plugin: lets TorchScript read each class once in a process, not again for every module of that class.

A tiny model has a dozen modules, and tests load a thousand of them: reading their classes was a third of what the tests
of models compute. What is compiled, and what is shared between modules of one type, stays TorchScript's.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def pytest_collection_finish() -> None:
    """When test files have been imported, and torch by them."""
    if "torch" in sys.modules:
        install()


def install() -> None:
    """Keeps what TorchScript reads of classes and functions; once in a process, which has torch by then."""
    import torch.jit._recursive

    script: Any = torch.jit._recursive
    if hasattr(script.infer_methods_to_compile, "by_class"):
        return
    parsed = script.get_jit_def
    kept = cache(parsed)

    def definition(function: Any, name: str, self_name: str | None = None, is_classmethod: bool = False) -> Any:
        return kept(getattr(function, "__func__", function), name, self_name, is_classmethod)

    script.get_jit_def = definition
    script.get_overload_annotations = _none_by_class(script.get_overload_annotations)
    script.get_property_stubs = _once_for_each_class(script.get_property_stubs)
    script.infer_methods_to_compile = _methods_once(script.infer_methods_to_compile, script.make_stub_from_method)


def _none_by_class(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A class that was found to overload nothing is not asked again."""
    without: set[type] = set()

    def reading(module: Any, ignored: Any) -> Any:
        if type(module) in without:
            return {}
        found = read(module, ignored)
        if not found:
            without.add(type(module))
        return found

    return reading


def _once_for_each_class(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: dict[type, Any] = {}

    def reading(module: Any) -> Any:
        of = type(module)
        if of not in known:
            known[of] = read(module)
        return known[of]

    return reading


def _methods_once(infer: Callable[[Any], Any], stub: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
    """Names of methods are kept, and no stub: it holds a module, and that its weights."""
    known: dict[type, list[str]] = {}

    def inferring(module: Any) -> Any:
        of = type(module)
        if of in known:
            module.__overloads__ = {}
            return [stub(module, name) for name in known[of]]
        found = infer(module)
        if not module.__overloads__:
            known[of] = [each.def_.name().name for each in found]
        return found

    inferring.by_class = known  # type: ignore[attr-defined]
    return inferring
