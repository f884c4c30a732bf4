"""An algorithm of cuBLASLt with all of its options, and whether it can be one that adds the depth in order."""

from ctypes import byref, c_size_t, sizeof
from dataclasses import dataclass

from services.common.kernels.linear.cublaslt import header
from services.common.kernels.linear.cublaslt.binding import Library
from services.common.kernels.linear.cublaslt.header import Algo, ConfigAttribute

_WORDS = 8
_COUNTER_BYTES = 64
"""Workspace that holds a counter of tiles at most: the part of a tile that some program has summed takes more."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The words of a `cublasLtMatmulAlgo_t`: equal words are the same kernel with the same options."""

    words: tuple[int, ...]

    @classmethod
    def of(cls, algo: Algo) -> "Algorithm":
        """Return what the library filled in."""
        return cls(tuple(algo.data))

    @classmethod
    def parse(cls, text: str) -> "Algorithm":
        """Return what `str` wrote.

        Raises:
            ValueError: it is not eight numbers in hexadecimal digits.
        """
        words = tuple(int(word, 16) for word in text.split("."))
        if len(words) != _WORDS or not all(0 <= word < 1 << 64 for word in words):
            raise ValueError(f"an algorithm is {_WORDS} words of 64 bits, not {text!r}")
        return cls(words)

    def __str__(self) -> str:
        return ".".join(f"{word:x}" for word in self.words)

    @property
    def algo(self) -> Algo:
        """A new structure for the library."""
        return Algo(type(Algo().data)(*self.words))


def config_of(library: Library, algorithm: Algorithm) -> dict[ConfigAttribute, int]:
    """Return every option of an algorithm.

    Raises:
        CublasLtError: the words are no algorithm of this library.
    """
    algo, written = algorithm.algo, c_size_t()
    found = {}
    for attribute in ConfigAttribute:
        value = attribute.kind()
        library.call(
            "cublasLtMatmulAlgoConfigGetAttribute",
            byref(algo), attribute, byref(value), sizeof(value), byref(written),
        )  # fmt: skip
        found[attribute] = value.value
    return found


def changed(library: Library, algorithm: Algorithm, changes: dict[ConfigAttribute, int]) -> Algorithm:
    """Return the algorithm with other options, which may not be supported together.

    Raises:
        CublasLtError: an option does not exist.
    """
    algo = algorithm.algo
    for attribute, number in changes.items():
        value = attribute.kind(number)
        library.call("cublasLtMatmulAlgoConfigSetAttribute", byref(algo), attribute, byref(value), sizeof(value))
    return Algorithm.of(algo)


def refusal(library: Library, algorithm: Algorithm, workspace_bytes: int) -> str:
    """Return what tells that an algorithm does not add the depth in one sequence; empty where nothing does.

    A split depth shows in its number of parts and in its reduction scheme. Stream-K shows in no option: a program hands
    the part of a tile that it has summed to another through the workspace, so what has room for one is refused. What
    is left must still be compared by its bits. Some ask for the four bytes of a counter when they are checked, but not
    when they are proposed for no workspace; launches give none.
    """
    config = config_of(library, algorithm)
    # Some kernels report 0 parts, for they cannot split.
    if config[ConfigAttribute.SPLITK_NUM] > 1:
        return "split"
    if config[ConfigAttribute.REDUCTION_SCHEME] != header.CUBLASLT_REDUCTION_SCHEME_NONE:
        return "reduction"
    return "workspace" if workspace_bytes > _COUNTER_BYTES else ""
