"""The memory that is left in a container is what its limit leaves beside what its processes take."""

from pathlib import Path

import pytest

from services.common.preflight import memory

MIB = 1 << 20
FREE = memory.free_bytes
"""As it is, before the folder's fixture sets another in its place."""


@pytest.mark.parametrize("version", [1, 2])
def test_what_processes_of_a_container_take_is_not_free(version: int, tmp_path: Path) -> None:
    names = {1: ("limit_in_bytes", "usage_in_bytes", "total_"), 2: ("max", "current", "")}[version]
    most, taken, start = names
    group = tmp_path / "memory" if version == 1 else tmp_path
    group.mkdir(exist_ok=True)
    (group / f"memory.{most}").write_text(f"{9 * MIB}\n")
    (group / f"memory.{taken}").write_text(f"{8 * MIB}\n")
    (group / "memory.stat").write_text(f"{start}active_file {MIB}\nanon 7\n{start}inactive_file {2 * MIB}\n")
    assert FREE(tmp_path) == 4 * MIB, "files' pages make room"
    (group / f"memory.{most}").write_text(f"{4 * MIB}\n")
    assert FREE(tmp_path) == 0


def test_a_container_without_a_limit_has_the_machines(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert FREE(tmp_path) > 9 * MIB
