"""Words that say which slots have their masks are set by value, behind the copies of these."""

import torch

from services.common.pair.arena.flags import places_setter, row_copier

SLOTS, COLUMNS = 6, 64


def test_slots_that_are_told_later_are_not_told_by_an_earlier_copy() -> None:
    """The stream stands still while the host tells slots twice, and mixes them."""
    side = torch.cuda.Stream()
    host_SN = torch.zeros(SLOTS, COLUMNS, dtype=torch.int32).pin_memory()
    device_SN, words_S = host_SN.cuda(), torch.zeros(SLOTS, dtype=torch.int64, device="cuda")
    copy_rows, set_words = row_copier(host_SN, device_SN), places_setter(words_S)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
    for number, slots in ((5, [0, 3]), (6, [1, 4])):
        host_SN[slots] = number
        copy_rows(min(slots), max(slots) + 1, side.cuda_stream)
        set_words(slots, number, side.cuda_stream)
    side.synchronize()
    assert words_S.tolist() == [5, 6, 0, 5, 6, 0]
    assert device_SN[:, 0].tolist() == [5, 6, 0, 5, 6, 0]
    host_SN[2] = 7
    copy_rows(2, 3, None)
    torch.cuda.synchronize()
    assert device_SN[2].eq(7).all()
