"""`paceline key NAME`: prints a new API key once, and its entry for the tenants file."""

import argparse
import secrets
import sys

from services.gateway.tenancy.tenants import digest


def main() -> int:
    """Prints a new key and its table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="paceline key", description=__doc__, usage="paceline key NAME")
    parser.add_argument("name", help="name of the tenant; needed", nargs="*")
    named, rest = parser.parse_known_args()
    if rest or len(named.name) != 1 or not named.name[0].strip() or not named.name[0].isprintable():
        parser.exit(2, "paceline key: takes one NAME of a tenant, of printable characters\n")
    (name,) = named.name
    key = secrets.token_urlsafe(32)
    sys.stdout.write(f"key: {key}\n\n[[tenant]]\nname = {name!r}\nkey_sha256 = ['{digest(key)}']\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
