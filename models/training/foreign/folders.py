"""Drafters of folders, as they are trained: to start from, or to measure beside."""

from dataclasses import replace
from pathlib import Path

from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.kinds import KINDS, Form, begin_from
from models.training.foreign.learning import Learner, LearningOptions
from models.training.foreign.publish import published, shape_for
from models.training.settings import Shape
from services.common.model.drafters import read_drafter_spec


def form_of(folder: Path, target: FrozenTarget) -> tuple[Form, Shape]:
    """Return kind and shape of a drafter for a target.

    Raises:
        ModelError: its configuration is damaged or of a kind that is not served.
        ValueError: it is of a kind or a layout that is not trained here.
    """
    spec = read_drafter_spec(folder)
    if spec.kind not in KINDS or spec.anchor_predicts or spec.draft_vocab:
        raise ValueError(f"{folder}: drafters of kind {spec.kind} or of its layout are not trained here")
    rank = getattr(spec, "rank", getattr(spec, "markov_rank", 0))
    form = Form(spec.kind, rank, getattr(spec, "group", Form.group))
    shape = shape_for(target, len(spec.layers), spec.block_size, spec.mask_token_id)
    return form, replace(shape, target_layer_ids=spec.target_layer_ids)


def open_learner(folder: Path, target: FrozenTarget, options: LearningOptions) -> Learner:
    """Return a learner whose drafter is a folder's.

    Raises:
        ModelError: as `form_of`.
        ValueError: as `form_of`, or a tensor has another shape.
    """
    form, shape = form_of(folder, target)
    learner = Learner(target, shape, options, form)
    begin(learner, folder)
    return learner


def begin(learner: Learner, folder: Path) -> None:
    """Start from a folder's drafter; see `begin_from`.

    Raises:
        ValueError: a tensor has another shape.
    """
    begin_from(learner.drafter, published(folder))
    learner.begun = True
