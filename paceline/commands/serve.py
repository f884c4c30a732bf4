"""paceline serve: starts gateway, target and drafter on this machine."""

import platform
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from paceline import bundle

NEEDED = ("torch", "ray", "numpy", "safetensors", "tokenizers", "prometheus_client", "cryptography", "grpc_health")


def run(argv: Sequence[str]) -> int:
    """Becomes the program that serves; a first word that is no flag names the model."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print(f"paceline serves on Linux x86-64 only, not {platform.system()} {platform.machine()}", file=sys.stderr)
        return 1
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; run: pip install 'paceline[serve]'", file=sys.stderr)
        return 1
    flags = [f"--model={argv[0]}", *argv[1:]] if argv and not argv[0].startswith("-") else argv
    return bundle.become("deploy.up", flags)
