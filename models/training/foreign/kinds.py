"""The kinds of drafters that fill blocks, as they are trained: modules whose state dicts are the published layouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.training.drafter import Drafter
from models.training.export import drafter_config
from models.training.foreign.convolution import ConvLayer
from models.training.foreign.pair_heads import ArgmaxPairs, Markov, Selector
from models.training.foreign.trained import Trained
from models.training.settings import Shape

TAPS, GROUP, CANDIDATES = 2, 16, 16
"""Rows and columns of DFlash 2's kernels, and how many tokens its selector scores: as published."""

MATRIX, SPREAD = 2, 0.02
"""Dimensions of what is drawn at first, and its standard deviation."""


@dataclass(frozen=True)
class Form:
    """A kind and the rank of its head; `groups` of columns have a kernel of their own."""

    kind: str
    rank: int = 32
    group: int = GROUP


class BlockDrafter(Drafter, Trained):
    """DFlash, with the head and the layers of a kind."""

    def __init__(self, shape: Shape, form: Form) -> None:
        super().__init__(shape)
        self.form = form

    @property
    def pairs(self) -> Selector | Markov | None:
        """What learns of the token before."""
        return None

    @property
    def head(self) -> Selector | Markov | ArgmaxPairs:
        """What chooses tokens."""
        return self.pairs or ArgmaxPairs()

    def config(self, sizes: Sequence[int]) -> dict[str, object]:
        """Return config.json; `sizes` are shorter blocks that it has seen."""
        return drafter_config(self.shape, [size for size in sizes if size < self.shape.block_size])


class DFlash2(BlockDrafter):
    """Convolutions in its layers, and the selector."""

    def __init__(self, shape: Shape, form: Form) -> None:
        super().__init__(shape, form)
        self.layers = nn.ModuleList(ConvLayer(shape, TAPS, form.group) for _ in range(shape.draft_layers))
        for name, weight in self.layers.named_parameters():
            if weight.dim() == MATRIX and "conv" not in name:
                nn.init.normal_(weight, std=SPREAD)
        self.candidate_selector = Selector(shape.vocab_size, shape.hidden_size, form.rank, CANDIDATES)

    @property
    def pairs(self) -> Selector | Markov | None:
        """The selector."""
        return self.candidate_selector

    def config(self, sizes: Sequence[int]) -> dict[str, object]:
        """Name the kind and the sizes of its own tensors."""
        config = drafter_config(self.shape, [size for size in sizes if size < self.shape.block_size])
        inner = config["dflash_config"]
        assert isinstance(inner, dict)
        inner |= {
            "conv_kernel_size": TAPS,
            "conv_group_size": self.form.group,
            "selector_rank": self.form.rank,
            "selector_top_k": self.candidate_selector.candidates,
        }
        return config | {"architectures": ["DFlash2DraftModel"]}


class DSpark(BlockDrafter):
    """DFlash's layers and layout, in which the anchor's row predicts nothing, with a bias by the token before."""

    _NAMES = (("markov.markov_", "markov_head.markov_"), ("markov.confidence.", "confidence_head.proj."))

    def __init__(self, shape: Shape, form: Form) -> None:
        super().__init__(shape, form)
        self.markov = Markov(shape.vocab_size, shape.hidden_size, form.rank)

    @property
    def pairs(self) -> Selector | Markov | None:
        """The bias."""
        return self.markov

    def published(self) -> dict[str, Tensor]:
        """Return the tensors by DeepSpec's names."""
        return {self._renamed(name, 0, 1): tensor for name, tensor in self.state_dict().items()}

    def load_published(self, tensors: Mapping[str, Tensor]) -> None:
        """Take tensors by DeepSpec's names."""
        self.load_state_dict({self._renamed(name, 1, 0): tensor for name, tensor in tensors.items()})

    def config(self, sizes: Sequence[int]) -> dict[str, object]:
        """Name the kind, and say that the anchor's row predicts nothing."""
        return drafter_config(self.shape, [size for size in sizes if size < self.shape.block_size]) | {
            "architectures": ["DSparkDraftModel"],
            "sample_from_anchor": False,
            "markov_rank": self.form.rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }

    def _renamed(self, name: str, old: int, new: int) -> str:
        for names in self._NAMES:
            if name.startswith(names[old]):
                return names[new] + name.removeprefix(names[old])
        return name


KINDS: Mapping[str, type[BlockDrafter]] = {"dflash": BlockDrafter, "dflash2": DFlash2, "dspark": DSpark}


def new_drafter(shape: Shape, form: Form) -> BlockDrafter:
    """Return a drafter of a kind before training."""
    return KINDS[form.kind](shape, form)


@torch.no_grad()
def begin_from(drafter: BlockDrafter, tensors: Mapping[str, Tensor]) -> None:
    """Start from the tensors of a DFlash drafter of the same width and taps; of more layers the evenly spread ones.

    What it does not hold stays as drawn, so that a drafter of another kind begins by drafting as it did.

    Raises:
        ValueError: a tensor has another shape.
    """
    own, layers = drafter.published(), len(drafter.layers)
    held = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
    if held < layers:
        raise ValueError(f"the drafter to start from has {held} layers, fewer than {layers}")
    kept = {str(index): str(round(index * (held - 1) / max(1, layers - 1))) for index in range(layers)}
    taken = dict(own)
    for name in own:
        first, *rest = name.split(".")
        source = ".".join((first, kept[rest[0]], *rest[1:])) if first == "layers" else name
        if source in tensors:
            if tensors[source].shape != own[name].shape:
                raise ValueError(f"{source}: {tuple(tensors[source].shape)} where {tuple(own[name].shape)} is trained")
            taken[name] = tensors[source].to(own[name])
    drafter.load_published(taken)
