"""An answer grows by the messages of its stream."""

from collections.abc import Iterator
from dataclasses import fields

from paceline.answer import Piece, PositionLogprobs, Reading, TokenLogprob
from paceline.v1 import inference_pb2, types_pb2


def times(*values: float) -> Iterator[float]:
    yield from values


def delta(position: int, text: str, *ids: int) -> inference_pb2.GenerateResponse:
    return inference_pb2.GenerateResponse(
        request_id="r", delta=inference_pb2.Delta(position=position, token_ids=ids, text=text)
    )


def test_times_run_from_the_call_and_from_the_first_tokens() -> None:
    clock = times(10.0, 10.5, 11.0, 12.0)
    reading = Reading(lambda: next(clock))
    assert [reading.take(one) for one in (delta(0, "a", 1), delta(1, "", 2, 3), delta(3, "bc", 4))]
    answer = reading.answer
    assert (answer.text, answer.tokens, answer.first_s, answer.decode_s) == ("abc", [1, 2, 3, 4], 0.5, 1.5)
    assert answer.decode_tok_s == 2.0
    assert not answer.finish


def test_a_piece_tells_all_of_its_message() -> None:
    names = {field.name for field in inference_pb2.Delta.DESCRIPTOR.fields}
    assert names == {field.name for field in fields(Piece)} - {"tokens"} | {"token_ids"}
    message = delta(3, "ab", 1, 2)
    message.delta.drafted, message.delta.accepted = 7, 1
    piece = Reading(lambda: 0.0).take(message)
    assert piece == Piece(position=3, tokens=(1, 2), text="ab", drafted=7, accepted=1)


def test_the_end_tells_what_it_took() -> None:
    reading = Reading(lambda: 0.0)
    final = inference_pb2.Final(
        finish_reason=types_pb2.FINISH_REASON_STOP_STRING,
        usage=types_pb2.Usage(prompt_tokens=3, cached_tokens=2, migrations=1, reasoning_tokens=4),
        speculation=types_pb2.SpeculationStats(rounds=4, drafted=9, accepted=6),
        seed=7,
        model_revision="v",
        numerics_changed=True,
    )
    assert reading.take(inference_pb2.GenerateResponse(request_id="r", final=final)) is None
    answer = reading.answer
    assert (answer.request_id, answer.finish, answer.seed, answer.model_revision) == ("r", "stop_string", 7, "v")
    assert (answer.prompt_tokens, answer.cached_tokens, answer.migrations, answer.reasoning_tokens) == (3, 2, 1, 4)
    assert answer.tau == 2.5
    assert answer.numerics_changed


def test_a_cancelled_answer_says_so_and_one_that_had_ended_keeps_its_end() -> None:
    reading = Reading(lambda: 0.0)
    reading.cancel()
    assert reading.answer.finish == "cancelled"
    ended = Reading(lambda: 0.0)
    final = inference_pb2.Final(finish_reason=types_pb2.FINISH_REASON_LENGTH)
    ended.take(inference_pb2.GenerateResponse(final=final))
    ended.cancel()
    assert ended.answer.finish == "length"
    assert ended.answer.tau == ended.answer.decode_tok_s == 0.0


def test_log_probabilities_are_gathered_on_the_answer() -> None:
    reading = Reading(lambda: 0.0)
    best = types_pb2.TokenLogprob(token_id=7, logprob=-0.5)
    for number in (1, 2):
        message = delta(number - 1, "a", number)
        chosen = types_pb2.TokenLogprob(token_id=number, logprob=-number)
        message.delta.logprobs.append(types_pb2.PositionLogprobs(chosen=chosen, top=[best]))
        message.delta.prompt_logprobs.extend(message.delta.logprobs)
        reading.take(message)
    told = [PositionLogprobs(TokenLogprob(number, -number), (TokenLogprob(7, -0.5),)) for number in (1, 2)]
    assert reading.answer.logprobs == reading.answer.prompt_logprobs == told
