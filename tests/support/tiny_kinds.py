"""A tiny random pair of every kind of drafter that has a checkpoint."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair, write_tiny

PAIRS: Mapping[str, Callable[..., TinyPair]] = {
    **CHAINS,
    **{kind: partial(write_tiny, std=0.25, drafter=changes) for kind, changes in DRAFTERS.items()},
}
"""Writers of a pair: by kind, and by layout of its file where there are several."""
