"""How a chat begins and ends: messages of the system, and a last message that is continued."""

from collections.abc import Iterator

import pytest

from services.common.request.errors import PacelineError
from services.gateway.prompts.chat_renderer import ChatRenderer

STRICT = (
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('the system speaks first') }}{% endif %}"
    "|{{ message.role }}:{{ message.content | trim }}{% endfor %}{% if add_generation_prompt %}|assistant:{% endif %}"
)
SYSTEM, OTHER = ({"role": "system", "content": text} for text in ("a", "b"))
USER = {"role": "user", "content": "hi"}


@pytest.fixture
def strict() -> Iterator[ChatRenderer]:
    renderer = ChatRenderer(STRICT, {})
    yield renderer
    renderer.close()


def test_messages_of_the_system_are_joined_where_the_template_wants_one(strict: ChatRenderer) -> None:
    assert strict.render([SYSTEM, USER, OTHER]) == "|system:a\n\nb|user:hi|assistant:"
    assert strict.render([USER, SYSTEM]) == "|system:a|user:hi|assistant:"


def test_a_template_that_takes_them_anywhere_has_them_where_they_are() -> None:
    renderer = ChatRenderer("{% for message in messages %}{{ message.content }}{% endfor %}", {})
    assert renderer.render([SYSTEM, USER, OTHER]) == "ahib"
    renderer.close()


def test_a_message_is_continued_as_the_template_leaves_it(strict: ChatRenderer) -> None:
    last = {"role": "assistant", "content": "so far "}
    continued = {"continue_final_message": True}
    assert strict.render([USER, last], arguments=continued) == "|user:hi|assistant:so far"
    plain = ChatRenderer("{% for message in messages %}<{{ message.content }}>\n{% endfor %}", {})
    assert plain.render([USER, last], arguments=continued) == "<hi>\n<so far "
    none = ChatRenderer("{{ messages[0].content }}", {})
    with pytest.raises(PacelineError, match="leaves the last message out"):
        none.render([USER, last], arguments=continued)
    for renderer in (plain, none):
        renderer.close()


def test_no_turn_begins_where_none_is_wanted(strict: ChatRenderer) -> None:
    assert strict.render([USER], arguments={"add_generation_prompt": False}) == "|user:hi"
