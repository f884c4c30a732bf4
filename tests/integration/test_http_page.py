"""The page at / and the status over HTTP: files for everybody, data for whoever has a key."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from services.common.pb.paceline.v1 import inference_pb2
from services.gateway.http.endpoints.page import FOLDER
from services.gateway.http.schema.replies import StatusReply
from tests.integration.http_stack import CHAT, MODELS, completion, serving
from tests.integration.test_gateway_security import tenants  # noqa: F401 - a fixture
from tests.integration.test_gateway_status import busy
from tests.integration.test_gateway_stream import until
from tests.support.http_client import connected

STATUS = "/v1/paceline/status"
KEY = {"authorization": "Bearer key-one"}
KINDS = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Parts(HTMLParser):
    """What a page loads, and what stands in its own text that a strict policy would refuse."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.inline: list[str] = []
        self._tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.loads += [value or "" for name, value in attrs if name == "src" or (tag == "link" and name == "href")]
        self.inline += [f"{tag} {name}" for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        if self._tag in ("script", "style") and data.strip():
            self.inline.append(data)


async def test_the_page_needs_no_key_and_its_data_do(tmp_path: Path, tenants: str) -> None:  # noqa: F811
    async with serving(tmp_path, tenants=tenants) as (_, http):
        page = await http.get("/")
        assert (page.status, page.body) == (200, (FOLDER / "index.html").read_bytes())
        for path in (STATUS, MODELS, CHAT, "/static/", "/static/x.js", "/static/../page.py", "/static"):
            assert (await http.get(path)).status == 401
        assert (await http.get(STATUS, **KEY)).status == 200


async def test_every_file_has_its_type_and_a_policy_that_lets_nothing_else_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        for path in FOLDER.iterdir():
            reply = await http.get("/" if path.name == "index.html" else f"/static/{path.name}")
            assert (reply.status, reply.body) == (200, path.read_bytes())
            assert reply.headers["content-type"].split(";")[0] == KINDS[path.suffix]
            directives = reply.headers["content-security-policy"].split("; ")
            policy = dict(one.split(" ", 1) for one in directives)
            assert {"default-src", "frame-ancestors", "base-uri", "form-action"} <= {
                name for name, value in policy.items() if value == "'none'"
            }
            assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"


async def test_only_its_own_files_are_loaded_and_nothing_stands_inline(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        parts = Parts((await http.get("/")).body.decode())
        assert not parts.inline
        loads = {*parts.loads}
        for path in FOLDER.glob("*.js"):
            loads |= {f"static/{name}" for name in re.findall(r'from "\./(.*?)"', path.read_text())}
        assert loads == {f"static/{path.name}" for path in FOLDER.iterdir() if path.name != "index.html"}
        for name in loads:
            assert (await http.get(f"/{name}")).status == 200


async def test_a_file_is_only_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        refused = await http.post("/", {})
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        async with connected(http.address) as raw:
            raw.writer.write(b"HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            head = await raw.reader.read()
            assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")


async def test_the_page_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, http_page=False) as (_, http):
        assert (await http.get("/")).status == (await http.get("/static/page.js")).status == 404
        assert (await http.get(STATUS)).status == 200


async def test_the_status_is_that_of_grpc(tmp_path: Path) -> None:
    async with serving(tmp_path, [busy("a", 6), busy("b", 2)]) as (one, http):
        await until(lambda: len([link for link in one.app._pool.links if link.candidate()]) == 2)
        told = (await http.get(STATUS)).json
        assert TypeAdapter(StatusReply).validate_python(told, strict=True) == told
        same = await one.stub.GetStatus(inference_pb2.GetStatusRequest())
        assert inference_pb2.GetStatusResponse(**_numbered(told)) == same
        assert [pair["pair_id"] for pair in told["each"]] == ["a", "b"]


def _numbered(told: dict) -> dict:  # type: ignore[type-arg]
    """The reply with numbers for widths, which JSON has as names."""
    for activity in (told["total"], *(pair["activity"] for pair in told["each"])):
        activity["rounds_by_width"] = {int(width): count for width, count in activity["rounds_by_width"].items()}
    return told


async def test_a_tenant_learns_totals_only(tmp_path: Path, tenants: str) -> None:  # noqa: F811
    async with serving(tmp_path, [busy("a", 6)], tenants=tenants) as (one, http):
        await until(lambda: one.app.ready)
        told = (await http.get(STATUS, **KEY)).json
        assert (told["each"], told["ready_pairs"], told["total"]["slots"]) == ([], 1, 8)
        assert told["total"]["tokens_per_round"] == pytest.approx(4.0)


async def test_chunks_tell_which_tokens_were_drafts(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        asked = completion(max_tokens=96, paceline={"drafts": True})
        chunks = [one async for one in http.stream("/v1/completions", asked) if one != "[DONE]"]
        told = [chunk["paceline"] for chunk in chunks if "paceline" in chunk]
        tokens = [token for one in told for token in one["tokens"]]
        assert len(tokens) == 96
        assert "".join(token["text"] for token in tokens) == "".join(chunk["choices"][0]["text"] for chunk in chunks)
        for one in told:
            assert sum(token["accepted"] for token in one["tokens"]) == one["accepted"]
        marks = "".join("a" if token["accepted"] else "t" for token in tokens)
        assert set(marks.split("t")) <= {"", "a", "aa", "aaa"}, "each round ends with a token of the target's own"
