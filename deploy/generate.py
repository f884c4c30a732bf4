"""python -m deploy.generate: streams one completion to the terminal."""

import argparse
import contextlib
from collections.abc import Iterator

from deploy.client import Client, Job
from deploy.stack import Stack, StackSettings
from deploy.up import print_progress


def main() -> int:
    """Generates from --prompt, on the gateway at --address or on a stack of its own."""
    parser = argparse.ArgumentParser(prog="make generate", description=__doc__)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--address", default="", help="gateway; default: start the embedded model for this call")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    job = Job(chosen.prompt, chosen.max_tokens, chosen.temperature, chosen.seed, ignore_eos=False)
    with gateway(chosen.address) as address, Client(address) as client:
        print(chosen.prompt, end="", flush=True)
        for message in client.stream(job):
            if message.HasField("delta"):
                print(message.delta.text, end="", flush=True)
            else:
                stats = message.final.speculation
                print(f"\n[{message.final.usage.completion_tokens} tokens in {stats.rounds} rounds]")
    return 0


@contextlib.contextmanager
def gateway(address: str) -> Iterator[str]:
    """The address given, or that of a stack that lives as long as the context."""
    if address:
        yield address
        return
    with Stack(StackSettings(), progress=print_progress) as stack:
        yield stack.gateway_address


if __name__ == "__main__":
    raise SystemExit(main())
