"""`python -m services.gateway.make_key NAME`: prints a new API key once, and its entry for the tenants file."""

import secrets
import sys

from services.gateway.tenants import digest


def main(arguments: list[str]) -> int:
    """Prints a new key and its table; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m services.gateway.make_key NAME\n")
        return 2
    key = secrets.token_urlsafe(32)
    sys.stdout.write(f"key: {key}\n\n[[tenant]]\nname = {arguments[0]!r}\nkey_sha256 = ['{digest(key)}']\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
