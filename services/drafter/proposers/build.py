"""Builds the proposer that the settings name."""

import logging

import torch

from services.common.kernels.linear.integers import adds_exactly
from services.common.model import load_block, load_chain
from services.common.model.drafters import LAYOUTS, read_any_spec
from services.common.model.drafters.spec import ChainSpec
from services.common.model.files.checkpoint import resolve_folder
from services.common.preflight.checks import refuse
from services.common.serving.progress import WEIGHTS, ended
from services.drafter.proposers import Proposer
from services.drafter.proposers.calibrated import CalibratedProposer
from services.drafter.proposers.cascade import CascadeProposer, Learned
from services.drafter.proposers.chain import ChainProposer
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.drafter.proposers.ngram import NgramProposer
from services.drafter.proposers.none import NoneProposer
from services.drafter.proposers.past import PastTexts
from services.drafter.settings import DrafterSettings

logger = logging.getLogger(__name__)
LONGEST = 16
"""Suffix that a cascade looks up: the longer it is, the likelier the text goes on as before."""


def build_proposer(settings: DrafterSettings) -> Proposer:
    """Loads weights when the kind has any.

    Raises:
        ModelError: the checkpoint cannot be used; names the file and the tensor.
    """
    if settings.proposer == "none":
        return NoneProposer()
    if settings.proposer == "ngram":
        return NgramProposer(settings.ngram_max, settings.ngram_min, _past(settings))
    learned, least = _of_checkpoint(settings), settings.lookup_from
    return CascadeProposer(learned, LONGEST, least, _past(settings)) if least else learned


def _past(settings: DrafterSettings) -> PastTexts | None:
    return PastTexts(settings.past_outputs, LONGEST) if settings.past_outputs else None


def _of_checkpoint(settings: DrafterSettings) -> Learned:
    if not settings.random_weights:
        refuse(settings.model)
    dtype: torch.dtype = getattr(torch, settings.dtype)
    int8 = in_int8(settings)
    logger.info("drafter loads", extra={"weights": "int8" if int8 else "dtype", "dtype": settings.dtype})
    how = settings.model, dtype, settings.device, settings.random_weights, int8
    anchored = LAYOUTS[settings.sample_from_anchor]
    if isinstance(read_any_spec(resolve_folder(settings.model), anchored), ChainSpec):
        chain = load_chain(*how)
        ended(WEIGHTS)
        logger.info("drafter is read", extra={"kind": chain.spec.kind, "tokens_scored": chain.spec.scored})
        return ChainProposer(chain)
    calibrated = settings.calibrated
    block = load_block(*how, anchored=anchored, candidates=settings.markov_candidates, confident=calibrated)
    ended(WEIGHTS)
    spec = block.spec
    told = {"kind": spec.kind, "drafts": spec.most_drafts, "anchor_predicts": spec.anchor_predicts}
    logger.info("drafter is read", extra=told | {"tokens_scored": spec.scored})
    proposer = CheckpointProposer(block, dtype, settings.short_blocks)
    return CalibratedProposer(proposer) if calibrated else proposer


def in_int8(settings: DrafterSettings) -> bool:
    """Whether products are by weights of eight bits.

    On a CPU with instructions for them a draft of SmolLM2's takes a third of the time. Elsewhere they are a choice.
    """
    if settings.weights == "auto":
        return settings.dtype == "float32" and adds_exactly(settings.device)
    return settings.weights == "int8"
