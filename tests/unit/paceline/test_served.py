"""What a gateway tells, as values."""

from dataclasses import fields
from typing import Any

import pytest

from paceline import Activity, Model, Pair, Status
from paceline.served import model, status
from paceline.v1 import inference_pb2, types_pb2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (Model, types_pb2.ModelInfo),
        (Status, inference_pb2.GetStatusResponse),
        (Pair, inference_pb2.PairStatus),
        (Activity, inference_pb2.Activity),
    ],
)
def test_every_field_of_the_contract_is_told(values: Any, message: Any) -> None:
    assert [one.name for one in fields(values)] == [field.name for field in message.DESCRIPTOR.fields]


def test_a_model_is_plain_values() -> None:
    told = types_pb2.ModelInfo(name="m", context_limit=9, eos_token_ids=[1, 2], limits={"max_stop_strings": 16})
    assert model(told) == Model("m", "", 9, 0, 0, (1, 2), "", {"max_stop_strings": 16}, "")


def test_a_status_is_plain_values() -> None:
    activity = inference_pb2.Activity(running=1, tokens_per_round=2.5, rounds_by_width={4: 3})
    pair = inference_pb2.PairStatus(pair_id="a", ready=True, activity=activity)
    found = status(inference_pb2.GetStatusResponse(model="m", pairs=1, total=activity, each=[pair]))
    same = Activity(1, 0, 0, 0, 0, 0, 0.0, 2.5, {4: 3})
    assert found == Status("m", 1, 0, same, (Pair("a", True, False, "", same, ""),))
