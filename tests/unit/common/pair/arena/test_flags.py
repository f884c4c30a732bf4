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


class Rows(SimpleNamespace):
    """What a copier reads of a tensor, and nothing of its memory."""

    shape, dtype = torch.Size((8, 3)), torch.int64

    def __getitem__(self, place: int) -> Any:
        return SimpleNamespace(nbytes=24)

    def is_contiguous(self) -> bool:
        return True


@pytest.mark.parametrize(("source", "target", "call"), [("cuda", "cpu", "DtoH"), ("cpu", "cuda", "HtoD")])
def test_the_driver_copies_rows_between_a_gpu_and_a_host(
    source: str, target: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From and to the same rows of both, on the stream that is named, or on the present one."""
    copied = list[tuple[str, int, int, int, int]]()

    def copy(name: str) -> Any:
        def noted(to: int, of: int, size: int, stream: int) -> int:
            copied.append((name, to, of, size, stream))
            return 0

        return noted

    driver = SimpleNamespace(cuMemcpyDtoHAsync_v2=copy("DtoH"), cuMemcpyHtoDAsync_v2=copy("HtoD"))
    monkeypatch.setattr(flags, "_driver", lambda: driver)
    monkeypatch.setattr(flags, "_present", lambda device: 5)

    given = [
        Rows(device=torch.device(place), data_ptr=lambda at=at: at) for place, at in ((source, 1000), (target, 5000))
    ]
    enqueue = flags.row_copier(*cast("tuple[Any, Any]", given))
    enqueue(0, 8, 9)
    enqueue(2, 3, None)
    assert copied == [(call, 5000, 1000, 192, 9), (call, 5048, 1048, 24, 5)]


def test_words_are_set_by_value_at_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a word which is still to be set does not say what the host has come to since."""
    written = list[tuple[int, int, int]]()
    monkeypatch.setattr(flags, "_write", lambda *write: written.append(write))
    words = SimpleNamespace(data_ptr=lambda: 4096)
    set_words = flags.places_setter(cast("Any", words))
    set_words([3, 0], 41, 9)
    set_words([1], 42, 9)
    assert written == [(9, 4120, 41), (9, 4096, 41), (9, 4104, 42)]


def test_rows_of_one_side_or_of_other_kinds_are_refused() -> None:
    source_SK = torch.arange(8).view(4, 2)
    with pytest.raises(ValueError, match="one of the two must be a GPU's"):
        flags.row_copier(source_SK, torch.zeros_like(source_SK))
    for other in (torch.zeros(4, 3, dtype=torch.int64), torch.zeros(4, 2, dtype=torch.int32)):
        with pytest.raises(ValueError, match="rows of"):
            flags.row_copier(source_SK, other)
    with pytest.raises(ValueError, match="one behind the other"):
        flags.row_copier(source_SK, torch.zeros(2, 4, dtype=torch.int64).T)
