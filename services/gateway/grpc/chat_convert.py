"""A client's chat as protobuf; `chat_check` judges what it holds."""

from services.common.pb.paceline.v1 import inference_pb2
from services.gateway.intake.query import Argument, ChatPrompt
from services.gateway.prompts.chat_check import check_counts, checked_chat


def chat_prompt(chat: inference_pb2.Chat) -> ChatPrompt:
    """One chat, its size known.

    Raises:
        PacelineError: INVALID_FIELD; the field is named, with the index of its message or tool.
    """
    check_counts(len(chat.messages), len(chat.tools), len(chat.template_arguments))
    arguments = {name: _value(argument) for name, argument in chat.template_arguments.items()}
    return checked_chat(chat.messages, chat.tools, arguments)


def _value(argument: inference_pb2.TemplateArgument) -> Argument | None:
    kind = argument.WhichOneof("value")
    value: Argument | None = None if kind is None else getattr(argument, kind)
    return value
