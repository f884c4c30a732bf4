"""What people may try when a stack serves, as commands to paste."""

import json
import shlex
from dataclasses import dataclass

from paceline import bundle
from paceline.commands.chat import EMBEDDED
from paceline.commands.connection import ADDRESS, API_KEY

QUESTION = "What is the capital of France?"
BEGINNING = "The capital of France is"
CODE = "def main():"
"""For the embedded pair, which answers nothing."""


@dataclass(frozen=True)
class Served:
    """What there is to try; files are those of the flags, empty without."""

    address: str
    """Of gRPC."""
    http: str
    """Of OpenAI's API; empty for none."""
    model: str
    """Public name."""
    chats: bool = True
    """It has a chat template."""
    tls_cert: str = ""
    tls_ca: str = ""
    """What signs clients' certificates."""
    keyed: bool = False
    """Callers need a key."""
    key_file: str = ""

    @property
    def beginning(self) -> str:
        """What the model may continue."""
        return CODE if self.model == EMBEDDED else BEGINNING

    @property
    def answers(self) -> bool:
        """Questions are worth asking."""
        return self.chats and self.model != EMBEDDED

    @property
    def scheme(self) -> str:
        """How an address of the gateway begins: https where it has a certificate."""
        return "https" if self.tls_cert else "http"


def to_try(served: Served) -> list[str]:
    """Commands for a gateway and its HTTP listener, as a user of this copy types them."""
    flags = [] if served.address == ADDRESS else ["--address", served.address]
    flags += ["--ca", served.tls_cert] if served.tls_cert else []
    flags += ["--cert", "CLIENT.pem", "--cert-key", "CLIENT.key"] if served.tls_ca else []
    commands = ["chat"] * served.chats + [f"generate {shlex.quote(served.beginning)}"]
    commands += [] if served.http else ["status"]
    lines = [f"export {API_KEY}={_key(served)}"] if served.keyed else []
    lines += [_command(command, flags) for command in commands]
    return [*lines, _curl(served)] if served.http else lines


def _key(served: Served) -> str:
    return f"$(head -1 {shlex.quote(served.key_file)})" if served.key_file else "THE_KEY"


def _command(command: str, flags: list[str]) -> str:
    """A command of paceline with flags; make has a name for the address alone."""
    if bundle.start() != "make up":
        return " ".join(["paceline", command, *map(shlex.quote, flags)])
    name, _, prompt = command.partition(" ")
    given = [f"PROMPT={prompt}"] if prompt else []
    if flags[:1] == ["--address"]:
        given, flags = [*given, f"ADDRESS={flags[1]}"], flags[2:]
    given += [f"ARGS={shlex.quote(' '.join(flags))}"] if flags else []
    return " ".join(["make", name, *given])


def _curl(served: Served) -> str:
    ask = {"messages": [{"role": "user", "content": QUESTION}]} if served.answers else {"prompt": served.beginning}
    path = "chat/completions" if served.answers else "completions"
    body = json.dumps({"model": served.model, **ask, "max_tokens": 32})
    options = ["-H 'Content-Type: application/json'"]
    options += [f'-H "Authorization: Bearer ${API_KEY}"'] if served.keyed else []
    options += [f"--cacert {shlex.quote(served.tls_cert)}"] if served.tls_cert else []
    options += ["--cert CLIENT.pem --key CLIENT.key"] if served.tls_ca else []
    return f"curl {served.scheme}://{served.http}/v1/{path} {' '.join(options)} -d {shlex.quote(body)}"
