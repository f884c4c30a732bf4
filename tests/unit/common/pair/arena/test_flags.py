"""Words that streams set: what is called for one, in memory of a CPU and of a GPU."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from services.common.pair.arena import flags


def test_a_word_in_host_memory_is_set_at_once() -> None:
    words_2 = torch.tensor([0, 7])
    flags.setter(words_2[0])(41)
    assert words_2.tolist() == [41, 7]


def test_the_driver_sets_a_word_on_a_gpu_at_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stream that is present when it is set, not when it is made."""
    written, stream = list[tuple[int, int, int]](), 5
    monkeypatch.setattr(flags, "_write", lambda *write: written.append(write))
    monkeypatch.setattr(flags, "_present", lambda device: stream)
    word = SimpleNamespace(device=torch.device("cuda"), data_ptr=lambda: 4096)
    set_word = flags.setter(cast("Any", word))
    set_word(41)
    stream = 6
    set_word(2**40)
    assert written == [(5, 4096, 41), (6, 4096, 2**40)]
