"""The CPU arena: one memory seen by two mappings, read-only but for the mailbox, gone when closed."""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from services.common.arena import MemfdArena, TensorEntry, plan_layout
from services.common.arena.layout import PAGE_BYTES

SPEC = {
    "embed": ((10, 4), torch.float32),
    "draft_kv": ((2, 2, 3, 4, 1, 2), torch.bfloat16),
    "slot.length": ((3,), torch.int64),
    "mailbox.tokens": ((3, 7), torch.int32),
}


def other_side(arena: MemfdArena) -> MemfdArena:
    return MemfdArena.map(arena.layout(), os.dup(arena.descriptor), writable=("mailbox.tokens",))


def test_both_sides_see_one_memory() -> None:
    owner = MemfdArena.create(SPEC)
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
    owner = MemfdArena.create(SPEC)
    for index, name in enumerate(SPEC):
        owner[name].fill_(index + 1)
    assert all(bool((owner[name] == index + 1).all()) for index, name in enumerate(SPEC))
    owner.close()


def test_writing_what_is_read_only_kills_only_the_writer() -> None:
    owner = MemfdArena.create(SPEC)
    code = (
        "import dataclasses, torch; from services.common.arena import MemfdArena, plan_layout;"
        "layout = plan_layout('memfd', {'slot.length': ((3,), torch.int64)});"
        f"layout = dataclasses.replace(layout, nbytes={owner.layout().nbytes});"
        f"MemfdArena.map(layout, {owner.descriptor})['slot.length'].fill_(1)"
    )
    done = subprocess.run(  # noqa: PLW1510 - the exit status is what is tested
        [sys.executable, "-c", code], pass_fds=[owner.descriptor], capture_output=True, timeout=120
    )
    assert done.returncode < 0, done.stderr.decode()
    assert not owner["embed"].any()
    owner.close()


def test_closing_is_idempotent_and_frees_the_descriptor() -> None:
    owner = MemfdArena.create(SPEC)
    descriptor = owner.descriptor
    owner.close()
    owner.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_lying_layout_is_refused() -> None:
    owner = MemfdArena.create(SPEC)
    layout = owner.layout()
    first = layout.tensors[0]
    for entry in (
        dataclasses.replace(first, offset=8),
        dataclasses.replace(first, shape=(1 << 40,)),
        dataclasses.replace(first, shape=(-1, 4)),
        dataclasses.replace(first, offset=layout.tensors[1].offset),
        dataclasses.replace(first, dtype="nn"),
        dataclasses.replace(first, name="slot.length"),
    ):
        with pytest.raises(ValueError, match=r"tensor|two tensors"):
            MemfdArena.map(dataclasses.replace(layout, tensors=(entry, *layout.tensors[1:])), owner.descriptor)
    with pytest.raises(ValueError, match="bytes"):
        MemfdArena.map(dataclasses.replace(layout, nbytes=layout.nbytes + PAGE_BYTES), owner.descriptor)
    owner.close()


def test_the_file_cannot_shrink_under_a_reader() -> None:
    owner = MemfdArena.create(SPEC)
    with pytest.raises(PermissionError):
        os.ftruncate(owner.descriptor, PAGE_BYTES)
    owner.close()


def test_places_are_page_aligned() -> None:
    layout = plan_layout("memfd", SPEC)
    assert all(entry.offset % PAGE_BYTES == 0 for entry in layout.tensors)
    assert layout.tensors[0] == TensorEntry("embed", "float32", (10, 4), 0)


def test_a_gpu_maps_by_larger_pages() -> None:
    layout = plan_layout("cuda", SPEC)
    assert all(entry.offset % (64 << 10) == 0 for entry in layout.tensors)
    assert layout.nbytes % (64 << 10) == 0
    layout.check()


def test_a_hundred_cycles_keep_no_descriptor() -> None:
    owner = MemfdArena.create(SPEC)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        other_side(owner).close()
    assert len(os.listdir("/proc/self/fd")) == before
    owner.close()
