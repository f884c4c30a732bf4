"""What surrounds generation over HTTP: probes, the version, names of the model, token ids of texts and back."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.common.metrics.version import VERSION
from services.gateway.http.schema.replies import TokenizerReply
from services.gateway.prompts.tokenizer import load_tokenizer
from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.integration.test_gateway_security import TENANTS
from tests.integration.test_gateway_stream import until
from tests.support.fakes_tokenizer import SPECIAL

GET_PATHS = ("/health", "/ping", "/version", MODELS, f"{MODELS}/fake", "/v1/paceline/status", "/openapi.json", "/")


async def test_probes_need_no_key_and_follow_the_targets(tmp_path: Path) -> None:
    tenants = tmp_path / "tenants.toml"
    tenants.write_text(TENANTS)
    async with serving(tmp_path, tenants=str(tenants)) as (one, http):
        await until(lambda: one.app.ready)
        for method, path in (("GET", "/health"), ("HEAD", "/health"), ("GET", "/ping"), ("POST", "/ping")):
            reply = await http.ask(method, path)
            assert (reply.status, reply.body) == (200, b"")
        assert (await http.get("/version")).json == {"version": VERSION}
        assert (await http.get(MODELS)).status == 401
        wrong = await http.ask("DELETE", "/health")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
        await one.targets[0].die()
        await until(lambda: not one.app.ready)
        assert [(await http.get(path)).status for path in ("/health", "/ping", "/version")] == [503, 503, 200]


@pytest.mark.parametrize("path", GET_PATHS)
async def test_head_has_the_headers_of_get_and_no_body(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as (_, http):
        await http.get(MODELS)  # a target has said what it serves
        whole, head = await http.get(path), await http.ask("HEAD", path)
        assert (head.status, head.body) == (whole.status, b"") == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]


async def test_a_model_may_have_other_names(tmp_path: Path) -> None:
    async with serving(tmp_path, model_aliases=("gpt-4o", "a/b")) as (one, http):
        listed = (await http.get(MODELS)).json["data"]
        assert [(model["id"], model["root"]) for model in listed] == [(n, "fake") for n in ("fake", "gpt-4o", "a/b")]
        found = (await http.get(f"{MODELS}/a/b")).json
        assert (found["id"], found["root"]) == ("a/b", "fake")
        for path, body in ((CHAT, chat(model="gpt-4o")), (COMPLETIONS, completion(model="gpt-4o"))):
            assert (await http.post(path, body)).json["model"] == "gpt-4o"
        assert (await http.post(CHAT, chat(model="gpt-4"))).status == 404
        assert (await one.ask(ask_for(model="a/b"))).final is not None


async def test_texts_and_chats_become_the_ids_that_a_request_has_and_texts_again(tmp_path: Path) -> None:
    text = "héllo wörld 日本語 😀 def add(first):\n"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    async with serving(tmp_path) as (one, http):
        for path, body in ((COMPLETIONS, completion(text)), (CHAT, chat(messages=messages))):
            await http.post(path, body)
            asked = {name: body[name] for name in ("prompt", "messages", "model") if name in body}
            reply = (await http.post("/tokenize", asked | {"return_token_strs": True})).json
            assert reply["tokens"] == [*one.targets[0].starts[-1].token_ids]
            assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
            assert reply["max_model_len"] == 4096
            back = (await http.post("/detokenize", {"tokens": reply["tokens"]})).json["prompt"]
            assert text in back if path == CHAT else back == text
            assert path == COMPLETIONS or SPECIAL[1] in back
        plain = (await http.post("/tokenize", {"prompt": text, "add_special_tokens": False})).json
        assert plain["token_strs"] is None
        assert load_tokenizer(tmp_path).decode(plain["tokens"]) == text
        info = (await http.get("/tokenizer_info")).json
        assert TypeAdapter[Any](TokenizerReply).validate_python(info, strict=True) == info
        assert (info["chat_template"], info["eos_token"]) == (load_tokenizer(tmp_path).template, SPECIAL[0])
        half = (await http.post("/detokenize", {"tokens": plain["tokens"][:2]})).json["prompt"]
        assert half.startswith("h")


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, 400, "prompt"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"prompt": ""}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "tools": []}, 400, "tools"),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/tokenize", {"prompt": "a", "foo": 1}, 400, "foo"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True}, 400,
         "add_special_tokens"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [512]}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [2**70]}, 400, "tokens"),
        ("/detokenize", {"tokens": ["1"]}, 400, "tokens[0]"),
    ],
)  # fmt: skip
async def test_what_cannot_be_tokenised_is_refused_by_name(
    tmp_path: Path, path: str, body: dict[str, Any], status: int, field: str
) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.post(path, body)
        assert (reply.status, reply.error["param"]) == (status, field)
