"""The drafter's own proposers, called in the test's process instead of across a stream."""

from pathlib import Path

import torch

from services.common.device.graph import Counters, StepGraphs
from services.common.model import load_block, load_chain
from services.common.pair.turns import DRAWN, NODES
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers import Proposer as DrafterProposer
from services.drafter.proposers.chain import ChainProposer
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.drafter.proposers.ngram import NgramProposer
from services.target.core.plan import Plan
from tests.lossless.loaded import loaded
from tests.lossless.rig import GENERATION, Proposer, ProposerFactory, Rig


class Served:
    """Drafts each round with the drafter's pacer over the rig's arena."""

    def __init__(self, rig: Rig, proposer: DrafterProposer) -> None:
        shared = ArenaView.of(rig.arena, rig.shapes.block_size)
        proposer.check(shared)
        self._pacer = DraftRunner(shared, proposer, GENERATION, StepGraphs("cpu"), HostHandoff(torch.device("cpu")))
        self._pacer.warm_up(rig.shapes.buckets, rig.shapes.widths[1:], trees=rig.shapes.trees)

    @property
    def counters(self) -> Counters:
        """What the drafter's steps have captured."""
        return self._pacer.counters

    @torch.inference_mode()
    def draft(self, plan: Plan) -> bool:
        """Fills the mailbox."""
        self._pacer.draft(plan.number, plan.bucket, plan.width, NODES * plan.nodes | DRAWN * plan.drawn)
        return True


def dflash(drafter: Path) -> ProposerFactory:
    """The DFlash drafter of a folder, in the data type of the rig's target."""

    def build(rig: Rig) -> Proposer:
        return Served(
            rig, CheckpointProposer(loaded(load_block, drafter, dtype=rig.settings.dtype), rig.settings.dtype)
        )

    return build


def chained(drafter: Path) -> ProposerFactory:
    """The drafter of a folder that makes chains, in the data type of the rig's target."""

    def build(rig: Rig) -> Proposer:
        return Served(rig, ChainProposer(loaded(load_chain, drafter, dtype=rig.settings.dtype)))

    return build


def ngram() -> ProposerFactory:
    """Prompt lookup."""

    def build(rig: Rig) -> Proposer:
        return Served(rig, NgramProposer())

    return build
