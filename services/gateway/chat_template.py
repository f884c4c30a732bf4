"""Renders a chat by the checkpoint's template, in a sandbox that can neither reach attributes nor change values."""

import json
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.common.errors import invalid_field

FIELD = "prompt.chat"
ROLES = ("system", "user", "assistant")


class ChatTemplate:
    """One compiled template."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        """Compiles the source; `special_tokens` are the names a template may use, such as eos_token."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.filters["tojson"] = _to_json
        self._template = environment.from_string(source)
        self._special_tokens = special_tokens

    def render(self, messages: list[dict[str, str]]) -> str:
        """The prompt, up to where the assistant's answer begins.

        Raises:
            PacelineError: INVALID_FIELD when a role is unknown or the template refuses the chat.
        """
        for index, message in enumerate(messages):
            if message["role"] not in ROLES:
                field = f"{FIELD}.messages[{index}].role"
                raise invalid_field(field, f"{message['role'][:64]!r} is not one of {', '.join(ROLES)}")
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except jinja2.TemplateError as error:
            raise invalid_field(FIELD, f"the chat template refuses this chat: {error}") from None


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The template of a checkpoint folder: chat_template.jinja, or the entry of tokenizer_config.json; None without."""
    config_path = folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(config_path.read_text()) if config_path.is_file() else {}
    template_path = folder / "chat_template.jinja"
    source = template_path.read_text() if template_path.is_file() else _default_template(config.get("chat_template"))
    return ChatTemplate(source, _special_tokens(config)) if source else None


def _default_template(entry: object) -> str | None:
    if isinstance(entry, list):
        return next((str(named["template"]) for named in entry if named.get("name") == "default"), None)
    return entry if isinstance(entry, str) else None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            found[name] = content
    return found


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
