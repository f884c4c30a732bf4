"""Renders chats in a process that its gateway can end; standard input is a socket.

A frame is four bytes of length and so many bytes. The first tells the template, each other one a chat.
"""

import json
import resource
import signal
import socket
import struct
import sys
from typing import Any

from services.common.serving.process import die_with_parent
from services.gateway.prompts.chat_template import ChatTemplate

LENGTH = struct.Struct("<I")
APART_BYTES = 1 << 16
"""Frames of this size are not copied for the sake of one call less."""

RENDERED, REFUSED = b"+", b"-"
MEMORY_BYTES = 512 << 20
GROWTH, LEAST_BYTES = 2, 1 << 21
"""What a template may make of a chat: so many times its size, or so many bytes of a small one."""

REASON_CHARACTERS = 300


def send(connection: socket.socket, content: bytes) -> None:
    """Writes one frame.

    Raises:
        OSError: the other end is gone or too slow.
    """
    head = LENGTH.pack(len(content))
    if len(content) < APART_BYTES:
        connection.sendall(head + content)
    else:
        connection.sendall(head)
        connection.sendall(content)


def answer(template: ChatTemplate, frame: bytes) -> bytes:
    """The rendered chat of a frame, or why there is none: whatever a template raises is its answer."""
    chat: dict[str, Any] = json.loads(frame)
    most = max(GROWTH * len(frame), LEAST_BYTES)
    try:
        text = template.render(**chat).encode()
    except Exception as error:
        reason = str(error) or type(error).__name__
        return REFUSED + f"the chat template refuses this chat: {reason[:REASON_CHARACTERS]}".encode(errors="replace")
    if len(text) > most:
        return REFUSED + f"the chat template makes {len(text)} bytes of this chat, at most {most} are allowed".encode()
    return RENDERED + text


def main() -> int:
    """Answers until the gateway is gone."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    connection = socket.socket(fileno=0)
    incoming = connection.makefile("rb")

    def frame() -> bytes:
        head = incoming.read(LENGTH.size)
        return incoming.read(*LENGTH.unpack(head)) if len(head) == LENGTH.size else b""

    template = ChatTemplate(**json.loads(frame()))
    send(connection, b"")
    while chat := frame():
        send(connection, answer(template, chat))
    return 0


if __name__ == "__main__":
    sys.exit(main())
