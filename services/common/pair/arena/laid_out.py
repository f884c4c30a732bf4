"""What all arenas have in common: tensors by name, where a layout says."""

from torch import Tensor

from services.common.pair.arena.layout import Layout


class LaidOut:
    """The tensors of a layout."""

    def __init__(self, layout: Layout, tensors: dict[str, Tensor]) -> None:
        self._layout = layout
        self._tensors = tensors

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; raises KeyError when the arena has none of that name."""
        return self._tensors[name]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def layout(self) -> Layout:
        """Return what a drafter needs besides a descriptor or a handle."""
        return self._layout
