"""Operators: a reference in torch, and a kernel of its name and signature beside it."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common import kernels
from services.common.kernels import dispatch
from services.common.kernels.dispatch import Operator
from tests.support.cases import each

PACKAGES = [import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)]
OPERATORS = {
    name: found
    for package in PACKAGES
    for name, found in vars(package).items()
    if isinstance(found, Operator) and found.reference.__module__ in (package.__name__, f"{package.__name__}.reference")
}


@each("name", OPERATORS)
def test_a_kernel_takes_what_its_reference_takes(name: str) -> None:
    found = OPERATORS[name]
    kernel = getattr(import_module(f"{found.reference.__module__.removesuffix('.reference')}.kernel"), name)
    own, other = (list(signature(each).parameters.values()) for each in (found.reference, kernel))
    assert [(each.name, each.default) for each in own] == [(each.name, each.default) for each in other[: len(own)]]
    assert all(each.default is not Parameter.empty for each in other[len(own) :])
    told = own[found._told_by]
    assert told.annotation in (Tensor, "Tensor"), "its device says where an operator runs"


def test_some_operators_are_found() -> None:
    assert {"accept", "argmax_token", "read_mailbox", "prepare_span"} <= set(OPERATORS)


def test_where_the_tensor_lies_says_who_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(times: int, numbers_T: Tensor) -> Tensor:
        return numbers_T * times

    chosen = Operator(doubled, told_by=1)
    calls: list[str] = []

    class Beside:
        @staticmethod
        def doubled(times: int, numbers_T: Tensor) -> Tensor:
            return numbers_T * times + 1

    def beside(name: str) -> Any:
        calls.append(name)
        return Beside

    monkeypatch.setattr(dispatch, "import_module", beside)
    assert chosen(3, torch.tensor([2])).tolist() == [6] and not calls
    monkeypatch.setattr(dispatch, "INTERPRETED", True)
    assert chosen(3, torch.tensor([2])).tolist() == [7]
    assert calls == [f"{__name__}.kernel"]
