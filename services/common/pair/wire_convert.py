"""Texts and drafts between protobuf and the values of `services.common.pair.wire`."""

from collections.abc import Iterable, Sequence

from services.common.pair.turns import BEHIND_PROMPTS, NODES, Answer, Ask
from services.common.pair.wire import Draft, Text
from services.common.pb.paceline.v1 import drafter_pb2 as pb


def ask_to_pb(ask: Ask, texts: Iterable[Text] = (), slots: Sequence[int] = ()) -> pb.PaceRequest:
    """The request for a round; texts, and the slots of its rows, go along where no memory is shared."""
    return pb.PaceRequest(
        generation=ask.generation,
        round=ask.round,
        bucket=ask.bucket,
        width=ask.width,
        rows=ask.rows,
        nodes=ask.bits & NODES != 0,
        behind_prompts=ask.bits & BEHIND_PROMPTS != 0,
        texts=_texts(texts),
        slots=slots,
    )


def texts_to_pb(generation: int, texts: Iterable[Text]) -> pb.PaceRequest:
    """A message that brings texts and asks for nothing."""
    return pb.PaceRequest(generation=generation, texts=_texts(texts))


def texts_from_pb(message: pb.PaceRequest) -> list[Text]:
    """The texts that a drafter received."""
    return [Text(text.slot, text.epoch, text.start, text.token_ids) for text in message.texts]


def answer_to_pb(answer: Answer, drafts: Iterable[Draft] = ()) -> pb.PaceResponse:
    """What a drafter answers."""
    return pb.PaceResponse(**answer._asdict(), drafts=[pb.RowDraft(**draft._asdict()) for draft in drafts])


def answer_from_pb(message: pb.PaceResponse) -> Answer:
    """What a target received, without the drafts."""
    return Answer(message.generation, message.round, message.draft_us)


def drafts_from_pb(message: pb.PaceResponse) -> list[Draft]:
    """The drafts that a target received."""
    return [Draft(row.slot, row.epoch, row.token_ids, row.parents) for row in message.drafts]


def _texts(texts: Iterable[Text]) -> list[pb.SlotText]:
    return [pb.SlotText(**text._asdict()) for text in texts]
