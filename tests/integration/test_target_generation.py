"""A target and the generation_config.json of its checkpoint: what ends a text there, and what is only told."""

import json
from pathlib import Path
from typing import Any

import torch

from services.common.model.files.manifest import write_manifest
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.serving.channel import connect
from services.target.app import TargetApp
from services.target.settings import TargetSettings
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.target.core.specs import prompt

PROMPT, TOKENS, WAIT_S = prompt(5, 23), 40, 60.0


def generated(folder: Path, ends: list[int] | None) -> list[int]:
    """What transformers says after the prompt."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    model.generation_config.eos_token_id = ends
    ids = torch.tensor([PROMPT])
    out = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)
    return [int(token) for token in out[0, len(PROMPT) :]]


async def test_the_second_end_token_ends_a_text_and_sampling_is_told_but_not_applied(tmp_path: Path) -> None:
    """As Qwen3 is published: one end token in config.json, two in generation_config.json."""
    folder = write_tiny(tmp_path, 7, TinyShape(context=256)).target
    second = generated(folder, None)[9]
    advice = {"eos_token_id": [0, second], "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    (folder / "generation_config.json").write_text(json.dumps(advice))
    write_manifest(folder)
    expected = generated(folder, [0, second])
    assert 0 < len(expected) <= 10
    app = TargetApp(TargetSettings(model=str(folder), dtype="float64", slots=1, threads=1, propagation_s=0.0))
    bound = await app.start()
    try:
        await app.wait_ready(WAIT_S)
        async with SessionClient(bound.grpc) as client, connect(bound.grpc) as channel:
            frame = start("a", PROMPT, TOKENS)
            frame.stopping.ignore_eos = False
            received = await client.start(frame)
            end = await received.ended()
            stub: Any = rpc.TargetServiceStub(channel)
            state = await stub.Describe(pb.TargetServiceDescribeRequest(protocol_version=1), timeout=WAIT_S)
    finally:
        await app.drain()
    assert (received.tokens, end.finish_reason) == (expected, types.FINISH_REASON_STOP_TOKEN)
    assert list(state.model.eos_token_ids) == [0, second]
    told = types.Sampling(temperature=0.6, top_k=20, top_p=0.95)
    assert state.recommended_sampling == told
