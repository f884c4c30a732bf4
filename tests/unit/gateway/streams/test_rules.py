"""The rule of a query: the bound of its thought, and the words that it may hold."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tokenizers import AddedToken

from services.common.request.constraint import ANY_WORDS, Constraint, Form, Rule, Thought, Words
from services.common.request.errors import PacelineError
from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.gateway.intake.query import ChatPrompt, Query, TextPrompt
from services.gateway.prompts.tokenizer import Tokenizer
from services.gateway.settings import GatewaySettings
from services.gateway.streams.rules import Rules
from services.gateway.tenancy.auth import ANYBODY
from tests.support.fakes_tokenizer import build_tokenizer

CHAT = ChatPrompt(({"role": "user", "content": "hi"},), 2)


class Template:
    """A chat template of which the source alone is read."""

    def __init__(self, source: str) -> None:
        self.source = source


@cache
def tokenizer(tags: bool, thinks: bool) -> Tokenizer:
    vocabulary = build_tokenizer()
    if tags:
        vocabulary.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    template: Any = Template("<think></think>" if thinks else "")
    return Tokenizer(vocabulary, template)


def query(**fields: Any) -> Query:
    plain = Query("", CHAT, SamplingParams(), True, StopParams(9), SpeculationParams(), None, 0, None, "", True)
    return replace(plain, **fields)


async def rule_of(asked: Query, tags: bool = True, thinks: bool = True, prompt: str = "hi", **settings: Any) -> Any:
    words = tokenizer(tags, thinks)
    made = Rules(GatewaySettings(tokenizer="x", targets=("y",), **settings))
    try:
        return await made.rule(asked, tuple(words.encode(prompt, special=False)), 10_000, ANYBODY, words)
    finally:
        made.close()


def thought(budget: int, begun: bool = False, end: str = "\n") -> Thought:
    words = tokenizer(True, True)
    (opening,), (closing,) = words.encode("<think>", special=False), words.encode("</think>", special=False)
    return Thought(opening, closing, begun, budget, (*words.encode(end, special=False), closing))


@pytest.mark.parametrize(
    ("fields", "settings", "budget"),
    [
        ({"budget": 7, "thinks": True}, {}, 7),
        ({"budget": 7, "effort": "low", "thinks": True}, {}, 7),
        ({"effort": "low", "thinks": True}, {}, 1024),
        ({"effort": "low", "thinks": True}, {"effort_budgets": ("low=5",), "thinking_budget": 9}, 5),
        ({"effort": "high", "thinks": True}, {"thinking_budget": 9}, 9),
        ({"thinks": True}, {"thinking_budget": 9}, 9),
        ({}, {"thinking_budget": 9}, 9),
    ],
)
async def test_a_thought_has_the_bound_that_was_stated(
    fields: dict[str, Any], settings: dict[str, Any], budget: int
) -> None:
    assert await rule_of(query(**fields), **settings) == Rule(thought=thought(budget))


async def test_a_thought_is_begun_by_the_prompt_and_closed_by_the_setting() -> None:
    asked = query(budget=3, thinks=True)
    assert await rule_of(asked, prompt="hi<think>", thinking_end="enough") == Rule(
        thought=thought(3, True, "\nenough\n")
    )


async def test_what_has_no_bound_has_no_rule() -> None:
    assert await rule_of(query(thinks=True)) is None
    assert await rule_of(query(thinks=True, effort="high")) is None
    assert await rule_of(query(prompt=TextPrompt("hi", 2)), thinking_budget=9) is None, "no chat"
    assert await rule_of(query(budget=3, thinks=True), thinks=False) is None, "there are no thoughts"
    assert await rule_of(query(budget=3, thinks=True), prompt="hi</think>") is None, "the prompt has closed it"


async def test_a_form_begins_behind_the_thought_where_the_request_thinks() -> None:
    form = Constraint(Form.REGEX, "a", "it")
    found = await rule_of(query(constraint=form, thinks=True, budget=3))
    assert (found.thought, bool(found.grammar)) == (thought(3), True)
    assert (await rule_of(query(constraint=form, thinks=True))).thought == replace(thought(0), budget=None, ending=())
    assert (await rule_of(query(constraint=form), thinking_budget=9)).thought is None


async def test_words_are_banned_alone_and_behind_a_blank() -> None:
    words = tokenizer(True, True)
    spelled = [tuple(words.encode(text, special=False)) for text in ("no", " no")]
    assert await rule_of(query(bad_words=("no", " no"))) == Rule(words=Words((), tuple(spelled)))
    assert (await rule_of(query(allowed=(5, 5, 4)))).words == Words((5, 4))
    assert (await rule_of(query(budget=1, thinks=True))).words is ANY_WORDS


@pytest.mark.parametrize(
    ("fields", "tags", "field"),
    [
        ({"bad_words": ("",)}, True, "bad_words"),
        ({"bad_words": ("x" * 257,)}, True, "bad_words"),
        ({"allowed": (10_000,)}, True, "allowed_token_ids"),
        ({"allowed": (1,), "constraint": Constraint(Form.REGEX, "a", "it")}, True, "allowed_token_ids"),
        ({"budget": 2, "budget_field": "its.name", "thinks": True}, False, "its.name"),
        ({"budget": 1 << 30, "budget_field": "its.name", "thinks": True}, True, "its.name"),
    ],
)
async def test_refusals_name_the_client_s_field(fields: dict[str, Any], tags: bool, field: str) -> None:
    with pytest.raises(PacelineError) as error:
        await rule_of(query(**fields), tags=tags)
    assert error.value.field == field


@pytest.mark.parametrize(
    "wrong",
    [
        {"effort_budgets": ("low",)},
        {"effort_budgets": ("low=-1",)},
        {"effort_budgets": ("=3",)},
        {"thinking_budget": -1},
        {"thinking_end": "x" * 1025},
    ],
)
def test_settings_that_bound_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PacelineError) as error:
        GatewaySettings(tokenizer="x", targets=("y",), **wrong)
    assert error.value.field == next(iter(wrong))
