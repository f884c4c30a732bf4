"""`python -m services.gateway.make_key NAME`: prints a new API key once, and its entry for the tenants file."""

import argparse
import secrets
import sys

from services.gateway.tenancy.tenants import digest


def main() -> int:
    """Prints a new key and its table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway.make_key", description=__doc__)
    parser.add_argument("name", help="name of the tenant; needed")
    name = parser.parse_args().name
    key = secrets.token_urlsafe(32)
    sys.stdout.write(f"key: {key}\n\n[[tenant]]\nname = {name!r}\nkey_sha256 = ['{digest(key)}']\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
