"""The CPU arena: one memory seen by two mappings, sealed but for the mailbox, gone when closed."""

import dataclasses
import mmap
import os
import subprocess
import sys

import pytest
import torch

from services.common.pair.arena import MemfdArena, TensorEntry, plan_layout
from services.common.pair.arena.layout import PAGE_BYTES

SPEC = {
    "embed": ((10, 4), torch.float32),
    "draft_kv": ((2, 2, 3, 4, 1, 2), torch.bfloat16),
    "slot.length": ((3,), torch.int64),
    "mailbox.tokens": ((3, 7), torch.int32),
}


MAILBOX = ("mailbox.tokens",)


def other_side(arena: MemfdArena) -> MemfdArena:
    return MemfdArena.map(arena.layout(), [os.dup(each) for each in arena.descriptors], MAILBOX)


def test_both_sides_see_one_memory() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    mapped = other_side(owner)
    for name, (shape, dtype) in SPEC.items():
        assert owner[name].shape == shape
        assert owner[name].dtype == dtype
        assert not owner[name].any()
        owner[name].fill_(3)
        assert torch.equal(mapped.tensor(name), owner[name])
    mapped["mailbox.tokens"][1] = 9
    assert owner["mailbox.tokens"][1].tolist() == [9] * 7
    assert "embed" in mapped
    assert "lm_head" not in mapped
    mapped.close()
    owner.close()


def test_tensors_do_not_overlap() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    for index, name in enumerate(SPEC):
        owner[name].fill_(index + 1)
    assert all(bool((owner[name] == index + 1).all()) for index, name in enumerate(SPEC))
    owner.close()


def test_writing_what_is_read_only_kills_only_the_writer() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    code = (
        "import dataclasses, torch; from services.common.pair.arena import MemfdArena, plan_layout;"
        "layout = plan_layout('memfd', {'slot.length': ((3,), torch.int64)});"
        f"layout = dataclasses.replace(layout, segments={owner.layout().segments[:1]});"
        f"MemfdArena.map(layout, [{owner.descriptors[0]}])['slot.length'].fill_(1)"
    )
    done = subprocess.run(  # noqa: PLW1510 - the exit status is what is tested
        [sys.executable, "-c", code], pass_fds=owner.descriptors, capture_output=True, timeout=120
    )
    assert done.returncode < 0, done.stderr.decode()
    assert not owner["embed"].any()
    owner.close()


def test_closing_is_idempotent_and_frees_the_descriptors() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    descriptors = owner.descriptors
    owner.close()
    owner.close()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_lying_layout_is_refused() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    layout = owner.layout()
    first = layout.tensors[0]
    for entry in (
        dataclasses.replace(first, offset=8),
        dataclasses.replace(first, shape=(1 << 40,)),
        dataclasses.replace(first, shape=(-1, 4)),
        dataclasses.replace(first, offset=layout.tensors[1].offset),
        dataclasses.replace(first, dtype="nn"),
        dataclasses.replace(first, name="slot.length"),
        dataclasses.replace(first, segment=2),
    ):
        with pytest.raises(ValueError, match=r"tensor|two tensors"):
            MemfdArena.map(dataclasses.replace(layout, tensors=(entry, *layout.tensors[1:])), owner.descriptors)
    larger = tuple(size + PAGE_BYTES for size in layout.segments)
    with pytest.raises(ValueError, match="bytes"):
        MemfdArena.map(dataclasses.replace(layout, segments=larger), owner.descriptors)
    with pytest.raises(ValueError, match="share a segment"):
        MemfdArena.map(layout, owner.descriptors, ("slot.length",))
    owner.close()


def test_what_only_the_owner_writes_can_be_written_in_no_way_by_who_holds_the_descriptor() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    owner["embed"].fill_(3)
    sealed, mailbox = owner.descriptors
    again = os.open(f"/proc/self/fd/{sealed}", os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (sealed, again):
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, PAGE_BYTES)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    os.close(again)
    mmap.mmap(mailbox, PAGE_BYTES)[:4] = b"abcd"
    assert bool((owner["embed"] == 3).all())
    owner["embed"].fill_(4)
    assert bool((other_side(owner)["embed"] == 4).all()), "the owner's own map goes on writing"
    owner.close()


def test_the_files_cannot_shrink_under_a_reader() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    for descriptor, size in zip(owner.descriptors, owner.layout().segments, strict=True):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size - 1)
    owner.close()


def test_places_are_page_aligned() -> None:
    layout = plan_layout("memfd", SPEC)
    assert all(entry.offset % PAGE_BYTES == 0 for entry in layout.tensors)
    assert layout.tensors[0] == TensorEntry("embed", "float32", (10, 4), 0)


def test_a_gpu_maps_by_larger_pages() -> None:
    layout = plan_layout("cuda", SPEC)
    assert all(entry.offset % (64 << 10) == 0 for entry in layout.tensors)
    assert layout.segments == (2 << 20,), "a handle opens whole pages: nothing else may lie in them"
    layout.check()


def test_a_hundred_cycles_keep_no_descriptor() -> None:
    owner = MemfdArena.create(SPEC, MAILBOX)
    files = {os.fstat(each).st_ino for each in owner.descriptors}

    def held() -> int:
        """Descriptors of these files; others come and go with what other tests left."""
        places = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        return sum(os.path.exists(each) and os.stat(each).st_ino in files for each in places)

    before = held()
    assert before >= len(files)
    for _ in range(100):
        other_side(owner).close()
    assert held() == before
    owner.close()
