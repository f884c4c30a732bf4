"""One real stack for the clients: a model whose answers are known, behind a key."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.stack import Stack, StackSettings
from services.gateway.tenancy.tenants import digest
from tests.support.scripted_checkpoint import write_scripted

CHAT, CALL, RESULT, COMPLETION = "<|chat|>", "<|tools|>", "<|result|>", "<|text|>"
FORM, FIELDS, HANDOFF, LOOK = "<|form|>", "<|fields|>", "<|handoff|>", "<|look|>"
SCRIPTS = {
    CHAT: ("Hello", " from", " Köln", ", you."),
    CALL: (
        "<think>\n", "A town?", "\n</think>\n\n", "I look.\n",
        '<tool_call>\n{"name": ', '"Weather", ', '"arguments": ', '{"town": ', '"Rome"}', "}\n", "</tool_call>",
    ),
    RESULT: ("It", " is", " warm", " there!"),
    COMPLETION: (" return", " 42"),
    FORM: ('{"town":"', 'Rome"}'),
    FIELDS: ("[[ ## town ## ]]", "\nRome", "\n\n[[ ## completed ## ]]"),
    HANDOFF: (
        "Over to.\n",
        '<tool_call>{"name": "', "transfer_to_", 'forecaster", "arguments": {}}', "\n</tool_call>",
    ),
    LOOK: ('<tool_call>\n{"name": "agent_', 'tool", "arguments": {"town": ', '"Rome"}}\n</tool_call>'),
}  # fmt: skip
"""What the model writes behind each of its keys; where a form is asked for, masks leave the tokens that it allows."""
REPORT = "Report"
"""Word of a message that asks for the answer in a form."""
TEMPLATE = (
    "{% set talk = namespace(said='') %}"
    "{% for message in messages %}"
    "{% set talk.said = talk.said + message.role + ': ' + (message.content or '') + '\n' %}"
    "{% endfor %}{{ talk.said }}"
    f"{{% if '[[ ## ' in talk.said and 'JSON' not in talk.said %}}{FIELDS}"
    f"{{% elif messages[-1].role == 'tool' and '{REPORT}' not in talk.said %}}{RESULT}"
    f"{{% elif tools and messages[-1].role != 'tool' and tools[0].function.name.startswith('transfer_to_') %}}{HANDOFF}"
    f"{{% elif tools and messages[-1].role != 'tool' and tools[0].function.name == 'agent_tool' %}}{LOOK}"
    f"{{% elif tools and messages[-1].role != 'tool' %}}{CALL}"
    f"{{% elif '{REPORT}' in talk.said or '[[ ## ' in talk.said %}}{FORM}"
    f"{{% else %}}{CHAT}{{% endif %}}"
)
KEY = "key-of-the-tests"


@dataclass(frozen=True)
class Talker:
    """What a client is given."""

    base_url: str
    model: str


@contextmanager
def talker() -> Iterator[Talker]:
    """What `make up` starts, with a tenant."""
    with tempfile.TemporaryDirectory(prefix="pl") as made:
        model = write_scripted(Path(made), TEMPLATE, SCRIPTS, COMPLETION)
        tenants = Path(made) / "tenants.toml"
        tenants.write_text(f"[[tenant]]\nname = 'clients'\nkey_sha256 = ['{digest(KEY)}']\n")
        flags = ("--http", "127.0.0.1:0", "--tenants", str(tenants))
        settings = StackSettings(model=str(model), drafter="", proposer="ngram", gateway_flags=flags)
        with Stack(settings) as stack:
            yield Talker(f"http://{stack.gateway_http[0]}/v1", settings.model_name)
