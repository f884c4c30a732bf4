"""Reads errors: python -m examples.python.errors [ADDRESS].

`reason` is stable and meant for programs, the message is for people, `field` names what is at fault, and
`retry_after_s` tells when the same call may succeed. What no gateway would take is an InvalidValueError, and not sent.
"""

import sys
from typing import Any

from examples.python.gateway import ADDRESS, connected
from paceline import InvalidValueError, RefusedError

BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "temperature out of range": ("x = 1", {"temperature": 9.0}),
    "empty prompt": ("", {}),
    "unknown model": ("x = 1", {"model": "no-such-model"}),
    "negative number of tokens": ("x = 1", {"max_tokens": -1}),
}
"""Prompt and options that no server accepts."""


def main() -> int:
    """Sends each bad request and prints how it is refused."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    with connected(address) as client:
        for name, (prompt, options) in BAD.items():
            try:
                client.generate(prompt, **options)
            except RefusedError as error:
                print(f"{name}: {error.code} {error.reason} field={error.field or '-'}: {error.message}")
            except InvalidValueError as error:
                print(f"{name}: {error}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
