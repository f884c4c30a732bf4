"""python -m deploy.generate: streams one completion of a running gateway to the terminal."""

import argparse
import sys

import grpc

from deploy.client import Client, Job, NoGatewayError

ADDRESS = "127.0.0.1:50051"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make generate", description=__doc__)
    parser.add_argument("--prompt", required=True, help="what the text begins with; needed")
    parser.add_argument("--address", default="", help=f"gateway, as make up prints it; default: {ADDRESS}")
    parser.add_argument("--max-tokens", type=int, default=128, help="most tokens of the answer; default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best token; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise; default: %(default)s")
    parsed = parser.parse_args()
    parsed.address = parsed.address or ADDRESS
    return parsed


def main() -> int:
    """Generates from --prompt; 1 when there is no gateway or it refuses."""
    chosen = arguments()
    job = Job(chosen.prompt, chosen.max_tokens, chosen.temperature, chosen.seed, ignore_eos=False)
    try:
        with Client(chosen.address) as client:
            show(client, job)
    except NoGatewayError as error:
        print(error, file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"{error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    return 0


def show(client: Client, job: Job) -> None:
    """Prints the prompt and its completion as it comes, then what speculation did."""
    print(job.prompt, end="", flush=True)
    for message in client.stream(job):
        if message.HasField("delta"):
            print(message.delta.text, end="", flush=True)
        else:
            stats = message.final.speculation
            print(f"\n[{message.final.usage.completion_tokens} tokens in {stats.rounds} rounds]")


if __name__ == "__main__":
    raise SystemExit(main())
