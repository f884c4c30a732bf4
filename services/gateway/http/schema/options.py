"""The one table of what a client may send: honoured, taken and ignored, refused. docs/use.md has it from here.

What is honoured and what is ignored, the bodies themselves say; what is refused stands here, with what to send instead.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from services.gateway.http.schema.base import Body, is_ignored
from services.gateway.http.schema.bodies import ChatBody, Common, CompletionBody
from services.gateway.http.schema.hosted import HostedTool, kind_of

State = Literal["honoured", "ignored", "refused"]
MOST_CLIENTS = 256
"""Lines of a tenant that name a client; more of them, or more tenants than MOST_TENANTS, are OTHERS."""
MOST_TENANTS = 256
OTHERS = "others"
MOST_AGENT = 100
"""Characters of a client's name in the log."""

REFUSED = {
    "add_special_tokens": "send token ids as the prompt of a completion",
    "audio": "answers are text",
    "chat_template": "the checkpoint's own template renders chats",
    "detokenize": "answers are text; return_token_ids tells the ids beside",
    "details": "send return_token_ids or logprobs",
    "do_sample": "send temperature, which is greedy at 0",
    "documents": "put them into a message",
    "dry_multiplier": "send repetition_penalty",
    "dynatemp_range": "send temperature",
    "echo": "it belongs to completions",
    "enable_search": "send a tool that searches",
    "extra_body": "send its fields beside the others",
    "format": "send response_format",
    "function_call": "send tool_choice",
    "functions": "send tools",
    "id_slot": "slots are chosen here",
    "incremental_output": "each event of a stream has what is new",
    "length_penalty": "there is no beam search",
    "logprob_start_len": "send prompt_logprobs",
    "max_new_tokens": "send max_tokens",
    "max_output_tokens": "send max_tokens",
    "mirostat": "send temperature, top_p, top_k or min_p",
    "mm_processor_kwargs": "prompts are text",
    "models": "send one model",
    "n_ctx": "the context is the server's own",
    "n_keep": "shorten the prompt",
    "n_predict": "send max_tokens",
    "n_probs": "send logprobs and top_logprobs",
    "no_stop_trim": "send include_stop_str_in_output",
    "num_ctx": "the context is the server's own",
    "num_predict": "send max_tokens",
    "options": "send its fields beside the others",
    "post_sampling_probs": "send logprobs",
    "priority": "send paceline.priority, where higher runs first",
    "random_seed": "send seed",
    "reasoning": "send reasoning_effort",
    "response_mime_type": "send response_format",
    "result_format": "answers are messages",
    "return_full_text": "send echo to completions",
    "return_hidden_states": "answers are text",
    "return_logprob": "send logprobs",
    "safe_prompt": "put it into a message with role system",
    "stop_sequences": "send stop",
    "return_tokens_as_token_ids": "send return_token_ids",
    "repeat_penalty": "send repetition_penalty",
    "think": "send enable_thinking",
    "system": "send a message with role system",
    "thinking_budget": "send thinking_token_budget",
    "tool_resources": "send tools",
    "top_a": "send min_p",
    "top_n_tokens": "send logprobs and top_logprobs",
    "truncate_prompt_tokens": "shorten the prompt",
    "typical_p": "send top_p or min_p",
    "use_beam_search": "send n",
    "watermark": "text is not marked",
    "web_search_options": "send a tool that searches",
    "xtc_probability": "send min_p",
}
"""Options of other servers that would change the text and are not served, and what to do instead."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (False,),
    "best_of": (1,),
    "detokenize": (True,),
    "details": (False,),
    "do_sample": (True,),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "echo": (False,),
    "enable_search": (False,),
    "function_call": ("auto", "none"),
    "id_slot": (-1,),
    "incremental_output": (True,),
    "length_penalty": (1,),
    "logprob_start_len": (-1,),
    "mirostat": (0,),
    "n_keep": (0,),
    "n_probs": (0,),
    "no_stop_trim": (False,),
    "post_sampling_probs": (False,),
    "priority": (0,),
    "repeat_penalty": (1,),
    "result_format": ("message",),
    "return_full_text": (False,),
    "return_hidden_states": (False,),
    "return_logprob": (False,),
    "return_tokens_as_token_ids": (False,),
    "safe_prompt": (False,),
    "thinking_budget": (-1,),
    "top_a": (0,),
    "top_n_tokens": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "watermark": (False,),
    "xtc_probability": (0,),
}
"""What such options are where nobody has chosen; it changes no text, so it is taken."""


def is_absent(name: str, value: Any) -> bool:
    """Whether an option that is not known says nothing: null, empty, or what it is where nobody has chosen."""
    said = value if isinstance(value, bool | str) or not isinstance(value, int | float) else float(value)
    known = (one if isinstance(one, bool | str) else float(one) for one in NEUTRAL.get(name, ()))
    return value is None or value in ("", [], {}) or any(type(one) is type(said) and one == said for one in known)


@dataclass(frozen=True, slots=True)
class Option:
    """One option; a dot and brackets stand for what is inside objects and lists."""

    name: str
    chat: bool
    completions: bool
    state: State
    text: str


def options() -> list[Option]:
    """The table, in the order of the bodies."""
    chat, completion = dict(_fields(ChatBody)), dict(_fields(CompletionBody))
    found = [
        Option(name, name in chat, name in completion, "ignored" if is_ignored(field) else "honoured", _text(field))
        for name, field in (chat | completion).items()
    ]
    known = {option.name for option in found}
    refused = ((name, instead) for name, instead in REFUSED.items() if name not in known)
    return found + [Option(name, True, True, "refused", instead) for name, instead in refused]


def _fields(model: type[Body], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Names and fields of a body, those of the bodies in it too."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield prefix + name, field
        for inner, several in _bodies(field.annotation, False):
            yield from _fields(inner, f"{prefix}{name}{'[]' if several else ''}.")


def _bodies(annotation: Any, several: bool) -> Iterator[tuple[type[Body], bool]]:
    """The bodies that a type holds, and whether in a list; what a provider runs is left out, so its fields are none."""
    if isinstance(annotation, type) and issubclass(annotation, Body) and annotation is not HostedTool:
        yield annotation, several
    for argument in get_args(annotation):
        yield from _bodies(argument, several or get_origin(annotation) is list)


def _text(field: FieldInfo) -> str:
    """What a field's value may be, where it is one, and what its description says."""
    values = [*_values(field.annotation)] if _one(field.annotation) else []
    only = f"{'One of' if len(values) > 1 else 'Only'} {', '.join(values)}." if values else ""
    return " ".join(text for text in (only, field.description or "") if text)


def _one(annotation: Any) -> bool:
    """Whether a type holds nothing but named values, and few of them."""
    leaves = [*_leaves(annotation)]
    return all(leaf is type(None) or get_origin(leaf) is Literal for leaf in leaves)


def _leaves(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal or not arguments:
        yield annotation
    else:
        for argument in arguments:
            yield from _leaves(argument)


def _values(annotation: Any) -> Iterator[str]:
    for leaf in _leaves(annotation):
        if leaf is not type(None):
            yield from (f"`{_word(value)}`" for value in get_args(leaf))
    if annotation is type(None) or annotation is None:
        yield "`null`"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


IGNORED = frozenset(option.name for option in options() if option.state == "ignored" and "[" not in option.name)
"""Options that cannot change the text."""


class IgnoredLog:
    """One line for each client and option that is taken and ignored, and for each kind that is left out.

    Names of both are a bounded set, those of clients are not: a tenant's first clients are told apart, all others of it
    are one. So whoever invents names takes no line from another tenant, and no option's first line from its own.
    """

    def __init__(self) -> None:
        """Nobody has sent any."""
        self._told: dict[str, set[tuple[str, str]]] = {}

    def tell(self, tenant: str, agent: str, body: Common) -> None:
        """Logs what is new; clients are told apart by tenant and User-Agent."""
        names = set(body.model_fields_set)
        if body.stream_options is not None:
            names |= {f"stream_options.{name}" for name in body.stream_options.model_fields_set}
        for name in sorted(names & IGNORED):
            self._once(tenant, agent[:MOST_AGENT], "option", name, "an option is taken and ignored")
        for name in sorted({*body.left_out}):
            self._once(tenant, agent[:MOST_AGENT], "kind", name, "what a provider runs or keeps is left out")

    def _once(self, tenant: str, agent: str, what: str, name: str, words: str) -> None:
        if tenant not in self._told and len(self._told) >= MOST_TENANTS:
            tenant = OTHERS
        told, kind = self._told.setdefault(tenant, set()), f"{what} {kind_of(name)}"[:MOST_AGENT]
        if (agent, kind) in told:
            return
        if len(told) >= MOST_CLIENTS:
            agent = OTHERS
        if (agent, kind) not in told and len(told) < 2 * MOST_CLIENTS:
            told.add((agent, kind))
            said = {"tenant": tenant, "user_agent": agent, what: name[:MOST_AGENT]}
            logging.getLogger(__name__).info(words, extra=said)
