"""What kernels in CUDA C++ are built from: a file, headers that it includes by name, sizes, and matrix instructions."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1]
"""Holds all files; a name without a folder is one of `include`, which all kernels share."""
BUILD = "build.cuh"
"""The header that is not a file: what one program is built for."""
_WIDE = "float", "f", "k16.f32"
_SUMS = {"bf16": _WIDE, "f16": _WIDE, "s8": ("int", "r", "k32.s32"), "e4m3": ("float", "f", "k32.f32")}
"""Of matrix instructions by what they multiply: the type of sums, its letter in PTX, and the shape."""
_SIGNS = {"s8": "p", "e4m3": "p, 1, 1"}
"""Of those of numbers in a byte: the predicate, and signs of operands."""
_INCLUDED = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


class Source(NamedTuple):
    """The file that has a kernel, and the text of `build.cuh`."""

    file: str
    build: str

    @property
    def text(self) -> str:
        """What a compiler is given; it finds all else by name."""
        return f'#include "{self.file}"\n'

    def headers(self) -> dict[str, str]:
        """Return all files that take part, by the names that they are included by."""
        found, waiting = {BUILD: f"#pragma once\n{self.build}"}, [self.file]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = read(name)
                waiting += _includes(name)
        return found


def included(text: str) -> list[str]:
    """Return the names that a file includes itself."""
    return _INCLUDED.findall(text)


@cache
def _includes(name: str) -> list[str]:
    return included(read(name))


@cache
def read(name: str) -> str:
    """Return a file by the name that it is included by."""
    return (FOLDER / name if "/" in name else FOLDER / "include" / name).read_text(encoding="utf-8")


def defined(**values: int) -> str:
    """Return the sizes that a source is built for."""
    return "".join(f"constexpr int {name.upper()} = {value};\n" for name, value in values.items())


def wgmma(name: str, columns: int, registers: bool, turned: bool = False, kind: str = "bf16") -> str:
    """Return the source of one product of 64 rows and 16 inputs of a `kind`: `name(sums, a, b, added)`.

    The left operand is in `registers` or is described as the right one is, which may be `turned`: side by side in
    memory are its columns then. Unless they are `added` to, the sums begin anew. PTX names each sum of a thread.
    Of numbers in a byte, whole ones ("s8") or "e4m3", there are 32 inputs; operands are described, and none is turned.
    """
    assert kind not in _SIGNS or not (registers or turned), "operands of numbers in a byte are described"
    sum_type, letter, shape = _SUMS[kind]
    count = columns // 2
    sums = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"+{letter}"(sums[{number}])' for number in range(count))
    parts = 4 if registers else 1
    right = count + parts
    left = "{" + ", ".join(f"%{count + part}" for part in range(4)) + "}" if registers else f"%{count}"
    given = ", ".join(f'"r"(a[{part}])' for part in range(4)) if registers else '"l"(a)'
    taken = "const unsigned (&a)[4]" if registers else "unsigned long long a"
    flags = _SIGNS.get(kind) or (f"p, 1, 1, {int(turned)}" if registers else f"p, 1, 1, 0, {int(turned)}")
    instruction = f"wgmma.mma_async.sync.aligned.m64n{columns}{shape}.{kind}.{kind}"
    return (
        f"__device__ __forceinline__ void {name}({sum_type} (&sums)[{count}], {taken}, unsigned long long b,\n"
        "    int added = 1) {\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{right + 1}, 0;\\n"\n'
        f'      "{instruction} {{{sums}}}, {left}, %{right}, {flags};\\n}}"\n'
        f'      : {outputs} : {given}, "l"(b), "r"(added));\n'
        "}\n"
    )
