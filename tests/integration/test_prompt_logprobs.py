"""Prompts that are scored, echoed and listed, over HTTP and gRPC, through the embedded pair: what lm-eval asks for."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import torch

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from tests.integration.gateway_stack import rich
from tests.integration.test_structured_output import CHAT, COMPLETIONS, EMBEDDED, Served, serving
from tests.lossless.oracle import Oracle

TEXT = "def fibonacci(n):\n    if n < 2:\n        return n\n    return"
OTHER = "import os\n\n\nclass Reader:\n"
TOLERANCE = 1e-3
"""The pair computes in float32, the oracle in float64."""


async def test_prompts_are_scored_echoed_and_listed() -> None:
    async with serving() as served:
        oracle = Oracle(EMBEDDED / "target")
        await as_lm_eval_asks(served, oracle)
        await lists_of_prompts(served)
        await without_any_output(served)
        await by_vllms_name(served, oracle)
        await streamed(served)
        await over_grpc(served, oracle)
        await what_is_refused(served)


async def complete(served: Served, **fields: Any) -> Any:
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    reply = await served.http.post(COMPLETIONS, {"model": model, "temperature": 0, "max_tokens": 5} | fields)
    assert reply.status == 200, reply.body
    return reply.json


async def ids_of(served: Served, text: str) -> list[int]:
    reply = await served.http.post("/tokenize", {"prompt": text})
    return list(reply.json["tokens"])


def expected(oracle: Oracle, ids: list[int]) -> list[float]:
    """Log-probabilities of all tokens but the first, by one forward."""
    log_TV = torch.log_softmax(oracle.logits(ids), -1)
    return [float(log_TV[place, token]) for place, token in enumerate(ids[1:])]


async def as_lm_eval_asks(served: Served, oracle: Oracle) -> None:
    """The body of its `local-completions`, and what it reads: values behind a context, and whether each is the best."""
    ids = await ids_of(served, TEXT)
    for prompt in (ids, [ids], TEXT, [TEXT]):
        (choice,) = (await complete(served, prompt=prompt, max_tokens=1, logprobs=1, seed=1234, echo=True))["choices"]
        told = choice["logprobs"]
        assert choice["text"].startswith(TEXT)
        assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["top_logprobs"]) == len(ids) + 1
        assert "".join(told["tokens"]) == choice["text"]
        assert told["text_offset"] == [len("".join(told["tokens"][:place])) for place in range(len(ids) + 1)]
        assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
        assert told["token_logprobs"][1:-1] == pytest.approx(expected(oracle, ids), abs=TOLERANCE)
        greedy = [
            value == max(top.values())
            for value, top in zip(told["token_logprobs"][1:], told["top_logprobs"][1:], strict=True)
        ]
        log_TV = oracle.logits(ids)
        assert greedy[:-1] == [int(log_TV[place].argmax()) == token for place, token in enumerate(ids[1:])]
        assert greedy[-1], "the token that was chosen greedily is the best one"


async def lists_of_prompts(served: Served) -> None:
    """Each is answered as if it came alone; choices are counted through."""
    alone = [await complete(served, prompt=text, n=2, seed=3, temperature=0.9) for text in (TEXT, OTHER)]
    both = await complete(served, prompt=[TEXT, OTHER], n=2, seed=3, temperature=0.9)
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert [c["text"] for c in both["choices"]] == [c["text"] for one in alone for c in one["choices"]]
    assert len({choice["text"] for choice in both["choices"]}) > 2
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert both["usage"][name] == sum(one["usage"][name] for one in alone)
    scored = await complete(served, prompt=[TEXT, OTHER], n=2, echo=True, logprobs=2, seed=3)
    first, second, third, fourth = scored["choices"]
    assert first["text"].startswith(TEXT) and fourth["text"].startswith(OTHER)
    assert first["logprobs"]["tokens"] != third["logprobs"]["tokens"]
    length = len(await ids_of(served, TEXT))
    assert first["logprobs"]["token_logprobs"][:length] == second["logprobs"]["token_logprobs"][:length]
    assert all(len(top) == 2 for top in first["logprobs"]["top_logprobs"][1:])


async def without_any_output(served: Served) -> None:
    whole = await complete(served, prompt=TEXT, max_tokens=0, echo=True, logprobs=3)
    (choice,) = whole["choices"]
    ids = await ids_of(served, TEXT)
    assert (choice["text"], choice["finish_reason"], len(choice["logprobs"]["tokens"])) == (TEXT, "length", len(ids))
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (len(ids), 0)
    (choice,) = (await complete(served, prompt=TEXT, max_tokens=0))["choices"]
    assert (choice["text"], choice["logprobs"], choice["finish_reason"]) == ("", None, "length")


async def by_vllms_name(served: Served, oracle: Oracle) -> None:
    """`prompt_logprobs` of completions and chats: by token id, the prompt's own token among them."""
    ids = await ids_of(served, TEXT)
    (choice,) = (await complete(served, prompt=ids, prompt_logprobs=2))["choices"]
    assert not choice["text"].startswith(TEXT) and choice["logprobs"] is None
    check_positions(choice["prompt_logprobs"], ids, expected(oracle, ids), 2)
    reply = await served.chat(prompt_logprobs=0, max_tokens=3)
    tokenized = await served.http.post("/tokenize", {"messages": [{"role": "user", "content": "Ada is 36."}]})
    ids = tokenized.json["tokens"]
    check_positions(reply.json["prompt_logprobs"], ids, expected(oracle, ids), 0)


def check_positions(told: Any, ids: list[int], values: list[float], best: int) -> None:
    assert told[0] is None and len(told) == len(ids)
    for position, token, value in zip(told[1:], ids[1:], values, strict=True):
        assert position[str(token)]["logprob"] == pytest.approx(value, abs=TOLERANCE)
        assert best <= len(position) <= best + 1
        ranks = sorted(one["rank"] for one in position.values() if one["rank"] is not None)
        assert ranks == [*range(1, best + 1)]


async def streamed(served: Served) -> None:
    """The prompt is the first chunk of each choice, and all chunks are the whole answer."""
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    body = {"model": model, "prompt": [TEXT, OTHER], "echo": True, "logprobs": 1, "max_tokens": 4, "temperature": 0}
    whole = (await complete(served, **body))["choices"]
    for most in (4, 0):
        texts, tokens = ["", ""], [[], []]  # type: ignore[var-annotated]
        async for event in served.http.stream(COMPLETIONS, body | {"stream": True, "max_tokens": most}):
            for choice in [] if event == "[DONE]" else event["choices"]:
                texts[choice["index"]] += choice["text"]
                tokens[choice["index"]] += choice["logprobs"]["tokens"] if choice["logprobs"] else []
        assert texts == ([one["text"] for one in whole] if most else [TEXT, OTHER])
        assert ["".join(one) for one in tokens] == texts


async def over_grpc(served: Served, oracle: Oracle) -> None:
    ids = await ids_of(served, TEXT)
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ids)),
        stopping=types_pb2.Stopping(max_tokens=6),
        prompt_logprobs=3,
        logprobs=1,
    )
    pieces = [piece async for piece in served.stub.Generate(request)]
    scores = [one for piece in pieces for one in piece.delta.prompt_logprobs]
    assert [one.chosen.token_id for one in scores] == ids[1:]
    assert [one.chosen.logprob for one in scores] == pytest.approx(expected(oracle, ids), abs=TOLERANCE)
    assert all(len(one.top) == 3 for one in scores)
    whole = await served.stub.GenerateWhole(inference_pb2.GenerateWholeRequest(request=request))
    assert [*whole.prompt_logprobs] == scores
    assert [*whole.token_ids] == [token for piece in pieces for token in piece.delta.token_ids]
    assert whole.text == "".join(piece.delta.text for piece in pieces)
    assert len(whole.logprobs) == len(whole.token_ids) == whole.final.usage.completion_tokens == 6
    request.stopping.max_tokens = 0
    nothing = await served.stub.GenerateWhole(inference_pb2.GenerateWholeRequest(request=request))
    assert [*nothing.prompt_logprobs] == scores and not nothing.token_ids and not nothing.text
    assert nothing.final.finish_reason == types_pb2.FINISH_REASON_LENGTH
    request.prompt_logprobs = 21
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await served.stub.GenerateWhole(inference_pb2.GenerateWholeRequest(request=request))
    assert rich(error.value).field == "prompt_logprobs"


async def what_is_refused(served: Served) -> None:
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    for fields, param in (
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt"),
        ({"prompt": "a", "prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt": "a", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
    ):
        reply = await served.http.post(COMPLETIONS, {"model": model} | fields)
        assert reply.status == 400 and reply.error["param"].startswith(param), reply.body
    reply = await served.http.post(CHAT, {"model": model, "messages": [], "max_tokens": 0})
    assert reply.status == 400
