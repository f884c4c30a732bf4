"""The gateway's page in a headless Chromium: it streams, marks, compares, stops, shows status and is accessible."""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from services.gateway.tenancy.tenants import digest
from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.integration.test_gateway_status import busy
from tests.integration.test_gateway_stream import until
from tests.integration.test_http_chat import END, script
from tests.interop.browser import browse
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client

TENANTS = f'[[tenant]]\nname = "one"\nkey_sha256 = ["{digest("key-one")}"]\n'
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script><b>bold</b> &amp; javascript:1'
TOO_MANY = "Failed to load resource: the server responded with a status of 429 (Too Many Requests)"
UNAUTHORIZED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"


def form(message: str = "hello", **fields: Any) -> dict[str, Any]:
    """What a reader sets on the page."""
    return {"message": message, "seed": 5, "tokens": 60, "temperature": 1} | fields


async def marked(http: Client, path: str, asked: dict[str, Any]) -> list[list[str]]:
    """Runs of accepted drafts and of other text, as the page shall show them."""
    asked = asked | {"max_tokens": 60, "paceline": {"drafts": True}}
    chunks = [one async for one in http.stream(path, asked) if one != "[DONE]"]
    tokens = [token for chunk in chunks for token in chunk.get("paceline", {}).get("tokens", ())]
    spans = [(token["accepted"], token["text"]) for token in tokens if token["text"]]
    choices = [chunk["choices"][0] for chunk in chunks]
    text = "".join(one["text"] if "text" in one else one["delta"].get("content", "") for one in choices)
    spans.append((False, text.removeprefix("".join(text for _, text in spans))))  # a character that is cut short
    runs = groupby(spans, lambda one: one[0])
    shown = [["MARK" if accepted else "#text", "".join(text for _, text in run)] for accepted, run in runs]
    return [piece for piece in shown if piece[1]]


@pytest.mark.parametrize("kind", ["chat", "text"])
async def test_an_answer_is_streamed_with_its_accepted_drafts_marked(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as (one, http):
        seen = await browse("answer", http.address, form=form(kind=kind))
        answer = seen["answers"][0]
        path, asked = (CHAT, chat()) if kind == "chat" else (COMPLETIONS, completion())
        assert answer["pieces"] == await marked(http, path, asked)
        assert {name for name, _ in answer["pieces"]} == {"MARK", "#text"}
        start, same = one.targets[0].starts
        assert [*start.token_ids] == [*same.token_ids]
        assert (start.sampling.temperature, start.sampling.seed) == (1.0, 5)
        assert answer["figures"]["tokens"] == "60"
        assert answer["figures"]["state"] == "token limit"
        assert seen["news"].startswith("token limit, 60 tokens, ")


async def test_tau_and_speed_are_those_of_the_stream(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.05)]) as (_, http):
        figures = (await browse("answer", http.address, form=form()))["answers"][0]["figures"]
        usage = (await http.post(CHAT, chat(max_tokens=60))).json["usage"]
        rounds = 60 - 1 - usage["paceline"]["accepted"]
        assert float(figures["tokens per round"]) == pytest.approx(59 / rounds, abs=0.005)
        assert 59 / (rounds * 0.05) * 0.5 < float(figures["tokens per second"]) <= 59 / ((rounds - 1) * 0.05)


async def test_what_a_model_writes_is_never_markup(tmp_path: Path) -> None:
    fake = FakeTarget(script=script(HOSTILE), eos=(END,))
    async with serving(tmp_path, [fake]) as (_, http):
        seen = await browse("answer", http.address, form=form(HOSTILE, tokens=500))
        answer = seen["answers"][0]
        assert (answer["text"], answer["elements"]) == (HOSTILE, 0)
        assert answer["figures"]["state"] == "ended"


async def test_thoughts_stand_apart_and_keep_their_marks(tmp_path: Path) -> None:
    fake = FakeTarget(script=script("<think>\nhm ü, hm\n</think>\n\nfine ü"), eos=(END,))
    async with serving(tmp_path, [fake]) as (_, http):
        answer = (await browse("answer", http.address, form=form(tokens=500)))["answers"][0]
        assert (answer["thought"], answer["text"]) == ("hm ü, hm", "fine ü")
        assert [name for name, _ in answer["pieces"]].count("MARK") > 2
        assert "".join(text for _, text in answer["pieces"]) == "hm ü, hmfine ü"


@pytest.mark.parametrize("mode", ["together", "in-turn"])
async def test_speculation_on_and_off_stand_side_by_side(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.01)]) as (one, http):
        seen = await browse("answer", http.address, form=form(mode=mode, seed=""))
        on, off = seen["answers"]
        assert (on["title"], off["title"]) == ("Speculation on", "Speculation off")
        assert on["text"] == off["text"]
        assert re.fullmatch(
            r"The texts are equal\. Measured with 2 short runs of each, one at a time, .*", seen["verdicts"][0]
        )
        starts = one.targets[0].starts
        assert [start.speculation.off for start in starts].count(True) == 3, "the answer, and two short runs"
        assert len(starts) == 6
        assert len({start.sampling.seed for start in starts}) == 1, "one seed for both, drawn as none was given"


async def test_a_conversation_is_sent_again_with_its_next_message(tmp_path: Path) -> None:
    fake = FakeTarget(script=script("fine"), eos=(END,))
    async with serving(tmp_path, [fake]) as (one, http):
        await browse("twice", http.address, form=form(system="Be brief."))
        turns = [("system", "Be brief."), ("user", "hello"), ("assistant", "fine"), ("user", "and then?")]
        await http.post(CHAT, chat(messages=[{"role": role, "content": text} for role, text in turns]))
        _, second, same = one.targets[0].starts
        assert [*second.token_ids] == [*same.token_ids]


@pytest.mark.parametrize("key", ["Escape", ""], ids=["by Escape", "by button"])
async def test_an_answer_is_stopped_and_keeps_what_has_come(tmp_path: Path, key: str) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.02)]) as (one, http):
        seen = await browse("stop", http.address, form=form(tokens=4000), key=key)
        answer = seen["answers"][0]
        assert (answer["figures"]["state"], answer["wrong"]) == ("stopped", [])
        assert len(answer["text"]) > 20 and int(answer["figures"]["tokens"]) < 4000
        assert seen["focused"] == "message" and seen["enabled"]
        await until(lambda: not one.targets[0].active)
        assert len(one.targets[0].cancels) == 1


async def test_status_follows_what_runs(tmp_path: Path) -> None:
    async with serving(tmp_path, [busy("a", 6), busy("b", 2)]) as (one, http):
        await until(lambda: len([link for link in one.app._pool.links if link.candidate()]) == 2)
        for target in one.targets:
            target.pace_s = 0.02
        seen = await browse("status", http.address, form=form(tokens=4000))
        told = dict(zip(*[iter(seen["running"].split("\n"))] * 2, strict=True))
        assert told["running"] == "1 of 16"
        assert told["tokens per round"] == "3.00"
        assert told["tokens checked per round"] == "4 in 100 %"
        idle = await browse("answer", http.address, form=form())
        assert (idle["note"], idle["pairs"]) == ("2 of 2 pairs ready", 2)


async def test_a_key_is_asked_for_and_kept_nowhere(tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text(TENANTS)
    async with serving(tmp_path, [busy("a", 6)], tenants=str(tmp_path / "tenants.toml")) as (one, http):
        await until(lambda: one.app.ready)
        refused = [UNAUTHORIZED] * 2
        seen = await browse("key", http.address, form=form(), secret="key-one", complaints=refused)
        assert (seen["before"]["model"], seen["before"]["note"]) == ("no model yet", "Needs a key.")
        assert seen["model"] == "fake"
        assert seen["answers"][0]["figures"]["tokens"] == "60"
        assert (seen["note"], seen["pairs"]) == ("1 of 1 pairs ready", 0), "totals only"
        local, session, cookies = json.loads(seen["kept"])
        assert ([*local], session, cookies) == (["paceline.conversations"], {}, "")
        assert "key-one" not in seen["kept"]
        assert (seen["url"], seen["asks"]) == (f"http://{http.address}/", False)
        assert [start.tenant for start in one.targets[0].starts] == ["one"]


async def test_tab_leads_from_the_top_to_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        await until(lambda: one.app.ready)
        order = (await browse("tabs", http.address))["order"]
        expected = ["A", "key-open", "SUMMARY", "status-pairs", "SUMMARY", "message", "send", "forget", "SUMMARY"]
        assert order[: len(expected)] == expected


@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "narrow"])
async def test_axe_finds_nothing(tmp_path: Path, width: int) -> None:
    async with serving(tmp_path) as (one, http):
        await until(lambda: one.app.ready)
        viewport = {"width": width, "height": 860}
        seen = await browse("axe", http.address, form=form(mode="together"), viewport=viewport)
        for scheme in ("light", "dark"):
            assert seen[scheme]["defects"] == []
            assert seen[scheme]["passes"] > 20


async def test_a_refusal_is_told_in_place_of_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.05)], max_requests=1) as (_, http):
        seen = await browse("answer", http.address, form=form(mode="together"), complaints=[TOO_MANY])
        served, refused = sorted(seen["answers"], key=lambda answer: len(answer["wrong"]))
        assert (served["figures"]["state"], served["wrong"]) == ("token limit", [])
        assert (refused["figures"]["state"], refused["text"]) == ("failed", "")
        assert refused["wrong"] == ["the gateway is full"]
        assert seen["verdicts"] == []


async def test_drafts_are_marked_only_when_that_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        for marks in (False, True):
            seen = await browse("marks", http.address, form=form(marks=marks))
            assert (seen["marked"], seen["formatted"], seen["hint"]) == (marks, not marks, marks)


MARKDOWN = """# Title

A **bold** word, `code` and [a link](https://example.org/x).

- one
- two

| a | b |
|---|---|
| 1 | 2 |

```python
print("<b>")
```
"""


async def test_markdown_is_formatted_and_code_has_a_button(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(script=script(MARKDOWN), eos=(END,))]) as (_, http):
        (answer,) = (await browse("answer", http.address, form=form(tokens=500)))["answers"]
        shown = answer["formatted"]
        assert answer["text"] == MARKDOWN
        for part in (
            "<strong>bold</strong>",
            "<code>code</code>",
            '<a href="https://example.org/x"',
            "<li><p>one</p></li>",
        ):
            assert part in shown
        assert '<th scope="col">a</th>' in shown and "<td>2</td>" in shown
        assert 'print("&lt;b&gt;")</code></pre>' in shown and "Copy code</button>" in shown


async def test_a_conversation_outlives_a_reload_and_is_edited_exported_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(script=script("fine"), eos=(END,))]) as (one, http):
        seen = await browse("kept", http.address, form=form())
        assert seen["after"] == seen["before"]
        asked = ("user", "hello"), ("assistant", "fine"), ("user", "and then?"), ("assistant", "fine")
        assert [(told["role"], told["content"]) for told in seen["exported"]["messages"]] == [*asked]
        assert [answer["text"] for answer in seen["again"]] == ["fine", "fine"]
        assert (seen["edited"], seen["left"], seen["empty"], seen["opened"]) == ("and then?", 1, 0, 1)
        assert seen["gone"] == ["[]", 0]
        _, second, again = one.targets[0].starts
        assert [*second.token_ids] == [*again.token_ids]


async def test_a_gateway_that_is_gone_is_told_in_words_and_asked_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        await until(lambda: one.app.ready)
        failures = {"allowed": "net::ERR_CONNECTION_REFUSED"}
        seen = await browse("gone", http.address, form=form(), **failures)
        assert seen["note"].startswith(
            "The gateway does not answer; it is asked again every 2 seconds. Last heard of at "
        )
        (failed,) = seen["failed"]
        assert failed["wrong"] == ["The gateway does not answer. It may have been stopped, or the network is away."]
        assert failed["figures"]["state"] == "failed"
        (answer,) = seen["answers"]
        assert (answer["figures"]["state"], answer["wrong"]) == ("token limit", [])


PICTURE_MS = 1000 / 60
MOST_OF_A_PICTURE = 0.5
"""Of a sixtieth of a second; the rest is the browser's."""


@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "narrow"])
async def test_nothing_moves_while_an_answer_streams_and_the_field_stays_in_sight(tmp_path: Path, width: int) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.016)]) as (one, http):
        await until(lambda: one.app.ready)
        viewport = {"width": width, "height": 860}
        seen = await browse("steady", http.address, form=form(tokens=400), viewport=viewport)
        assert seen["shifts"] == []
        assert seen["box"]["y"] + seen["box"]["height"] <= 861
        assert seen["box"]["height"] < 170
        tokens_s = int(seen["answers"][0]["figures"]["tokens"]) / seen["seconds"]
        print(f"{tokens_s:.0f} tokens a second, {seen['rate']:.1f} pictures, {seen['each']:.2f} ms of the page for one")
        assert seen["gap"] <= 1.1 * PICTURE_MS, "half of all pictures come no later than the screen shows them"
        assert seen["each"] <= MOST_OF_A_PICTURE * PICTURE_MS, "computed, whatever else the machine does"
