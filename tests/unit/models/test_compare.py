"""Kinds are compared by drafters that learn together: of the same batches, in as many steps, each as if alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.training.compare import by_place
from models.training.foreign.chain_learning import ChainLearner
from models.training.foreign.corpus import Conversations
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.heldout import measure
from models.training.foreign.kinds import Form
from models.training.foreign.learning import Learner, LearningOptions, Reader, learn, learn_together
from models.training.foreign.packing import pack
from models.training.foreign.publish import shape_for
from models.training.foreign.replay import Answer, reached
from tests.unit.models.foreign_pair import OPTIONS, shape_of

FEW: LearningOptions = replace(OPTIONS, steps=3, rows=2)


def _learners(target: FrozenTarget) -> list[Reader]:
    blocks: list[Reader] = [Learner(target, shape_of(target), FEW, Form(kind, rank=4)) for kind in ("dflash", "dspark")]
    return [*blocks, ChainLearner(target, shape_for(target, 1, 8, 0, 3), FEW)]


def _weights(learner: Reader) -> dict[str, Tensor]:
    return learner.trained.state_dict()


def test_each_learns_as_it_does_alone(target: FrozenTarget, texts: Conversations) -> None:
    packed, told = pack(texts), list[int]()
    together = _learners(target)
    assert learn_together(together, packed, lambda step, _seconds: told.append(step)) == 3
    assert told == [3]
    # A kind with a head of pairs draws its rows from the generator of the process, so that order counts there.
    for learner, alone in list(zip(together, _learners(target), strict=True))[::2]:
        before = {name: weight.clone() for name, weight in _weights(alone).items()}
        assert learn(alone, packed, lambda _step, _seconds: None) == 3
        own = _weights(alone)
        assert any((own[name] != weight).any() for name, weight in before.items())
        assert all(torch.equal(weight, own[name]) for name, weight in _weights(learner).items())


def test_drafters_of_the_same_taps_read_a_batch_once(
    target: FrozenTarget, texts: Conversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, reads = pack(texts), list[int]()
    read = target.read

    def counted(ids: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        reads.append(len(ids))
        return read(ids, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "read", counted)
    learn_together(_learners(target)[:2], packed, lambda _step, _seconds: None)
    # The scale of features is measured by four batches each, one after the other.
    assert len(reads) == 2 * 4 + 3


def test_rounds_that_are_right_up_to_a_place() -> None:
    accepted = [2, 0, 0, 1, 9, 0, 0]
    assert reached(accepted, 10, 16, 3) == (2, [2, 1, 0])
    assert reached(accepted, 10, 11, 3) == (0, [0, 0, 0])


def test_tau_is_one_and_the_shares_of_all_places(target: FrozenTarget, texts: Conversations) -> None:
    end = int(texts.ends[1])
    answers = [Answer(texts.ids[1, :end].tolist(), int(texts.starts[1]), "all", end)]
    for learner in _learners(target):
        (line,) = measure(learner, {0.0: answers}, 7, by_kind=False)
        # The last round is cut at the text's end, where a place's share counts it whole.
        assert line.tau <= 1.0 + sum(by_place(learner, answers)) + 1e-9
