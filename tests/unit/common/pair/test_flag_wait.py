"""A gate opens when its flag has come, or when nobody can send it any more."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import Tensor

from services.common.kernels.wait_flag import reached
from services.common.pair.flag_wait import FlagWait

GENERATION, PLACE = 11, 2 * (11 % 8)
LIMIT_S = 20.0


@pytest.fixture
def flags() -> Tensor:
    return torch.zeros(16, dtype=torch.int64)


def stamp(number: int) -> Tensor:
    return torch.tensor([number, GENERATION])


@pytest.mark.parametrize(("flag", "number"), [(5, 5), (6, 5), (2**31, 2**31 - 1), (2**40, 2**40)])
def test_a_flag_that_has_come_holds_nothing_up(flags: Tensor, flag: int, number: int) -> None:
    flags[PLACE] = flag
    start = time.monotonic()
    FlagWait(flags, "published", LIMIT_S).hold(stamp(number))
    assert time.monotonic() - start < LIMIT_S / 2


def test_it_waits_for_its_own_word_of_its_generation(flags: Tensor) -> None:
    flags.fill_(9)
    flags[PLACE + 1] = 8
    opened = threading.Event()

    def hold() -> None:
        FlagWait(flags, "drafted", LIMIT_S).hold(stamp(9))
        opened.set()

    waiting = threading.Thread(target=hold)
    waiting.start()
    assert not opened.wait(0.05)
    flags[PLACE + 1] = 9
    assert opened.wait(LIMIT_S / 2)
    waiting.join()


@pytest.mark.parametrize(("bucket", "serves"), [(1, True), (8, True), (16, False), (128, False)])
def test_it_serves_steps_of_few_sequences(flags: Tensor, bucket: int, serves: bool) -> None:
    assert FlagWait(flags, "drafted", LIMIT_S).serves(bucket) == serves


@pytest.mark.parametrize("number", [1, 2**31 + 5, 2**32 + 1, 2**62])
def test_a_fresh_word_has_reached_no_round(flags: Tensor, number: int) -> None:
    """After 2^31 rounds too: some sixty days of rounds."""
    assert not reached(flags, stamp(number), 0)


def test_it_gives_up_on_one_that_never_comes(flags: Tensor) -> None:
    FlagWait(flags, "drafted", 0.02).hold(stamp(1))
    assert not reached(flags, stamp(1), 1)
