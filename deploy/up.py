"""Serves a model on this machine until Ctrl-C: gateway, target and drafter."""

import argparse
import json
import shlex
import signal
import threading
import time

from deploy.checkpoints import resolved
from deploy.fleet import news
from deploy.shipped import shipped_pair, usual_pair
from deploy.stack import Stack, StackError, StackSettings, StackStoppedError, judged
from paceline import bundle
from paceline.commands.connection import ADDRESS
from services.common.pb.paceline.v1 import fleet_pb2
from services.common.preflight.ports import port_problem
from services.common.serving.process import leave_now, leave_when_asked

HTTP = "127.0.0.1:8000"
# Everything has to be gone within three seconds of a signal.
STOP_S = 2.0
LOOK_S = 0.2
DRAFTS = {"dflash": "drafts by a DFlash drafter", "ngram": "n-gram drafts", "none": "no drafts"}


def arguments() -> argparse.Namespace:
    """The command line; without a model it is that of the usual pair."""
    passed_on = "All other flags are those that python -m deploy.cluster --help lists, such as --target.widths 1,4."
    parser = argparse.ArgumentParser(prog=bundle.start(), description=__doc__, epilog=passed_on, allow_abbrev=False)
    parser.add_argument(
        "--model",
        default="",
        help="folder, GGUF file or hub id of a checkpoint, smollm2 or embedded; "
        "default: smollm2 where it is installed, else embedded",
    )
    parser.add_argument("--drafter", default="", help="folder or hub id of its DFlash drafter; default: n-gram drafts")
    parser.add_argument(
        "--proposer",
        default="",
        choices=["", "dflash", "ngram", "none"],
        help="what drafts; default: dflash with a drafter, else ngram",
    )
    parser.add_argument("--name", default="", help="public name of the model; default: that of its folder")
    parser.add_argument("--pairs", type=int, default=1, help="pairs of target and drafter; default: %(default)s")
    parser.add_argument(
        "--grpc", "--address", dest="address", default=ADDRESS, help="address of the gateway; default: %(default)s"
    )
    parser.add_argument("--http", default=HTTP, help="address of OpenAI's API, empty for none; default: %(default)s")
    parser.add_argument("--slots", type=int, default=16, help="requests that a pair runs at once; default: %(default)s")
    parsed, rest = parser.parse_known_args()
    parsed.cluster_flags = ["--slots", str(parsed.slots), *rest]
    pair = shipped_pair(parsed.model) if parsed.model else usual_pair()
    parsed.title = pair.title if pair else ""
    if pair:
        parsed.model, parsed.name = pair.model, parsed.name or pair.name
        if parsed.proposer in ("", "dflash"):
            parsed.drafter = parsed.drafter or pair.drafter
    parsed.name = parsed.name or parsed.model.rstrip("/").rsplit("/", 1)[-1]
    parsed.proposer = parsed.proposer or ("dflash" if parsed.drafter else "ngram")
    return parsed


def main() -> int:
    """Starts the stack, prints its addresses, tells what becomes of its pairs until a signal; 1 when it fails."""
    leave_when_asked()
    chosen = arguments()
    asked = StackSettings(
        model=chosen.model,
        drafter=chosen.drafter,
        proposer=chosen.proposer,
        model_name=chosen.name,
        pairs=chosen.pairs,
        gateway_address=chosen.address,
        ready_s=1800.0,
        stop_s=STOP_S,
        cluster_flags=chosen.cluster_flags,
        gateway_flags=["--http", chosen.http],
    )
    try:
        if chosen.title:
            print(f"serving {chosen.title} ({DRAFTS[chosen.proposer]})", flush=True)
        cluster = judged(asked)
        check_ports(chosen.address, chosen.http)
        settings = resolved(asked, cluster, lambda line: print(f"note: {line}", flush=True))
        stopped = stop_signal()
        with Stack(settings, print_progress, stopped) as stack:
            print(f"gateway  {stack.gateway_address}   metrics http://{stack.gateway_metrics[0]}/metrics")
            if stack.gateway_http[0]:
                print(f"OpenAI   http://{stack.gateway_http[0]}/v1   page http://{stack.gateway_http[0]}/")
            for pair in stack.pairs():
                print(described(pair))
            print("ready; Ctrl-C stops it. Try, in another terminal:")
            lines = to_try(stack.gateway_address, stack.gateway_http[0], settings.model_name)
            print(*(f"  {line}" for line in lines), sep="\n", flush=True)
            follow(stack, stopped)
    except StackStoppedError:
        return 0
    except StackError as error:
        print(error, flush=True)
        return 1
    return 0


def to_try(address: str, http: str, model: str) -> tuple[str, str, str]:
    """Three commands for a gateway and its HTTP listener, if it has one, as a user of this copy types them."""
    if bundle.start() == "make up":
        where = "" if address == ADDRESS else f" ADDRESS={address}"
        chat, generate, status = "make chat", 'make generate PROMPT="def main():"', "make status"
    else:
        where = "" if address == ADDRESS else f" --address {address}"
        chat, generate, status = "paceline chat", 'paceline generate "def main():"', "paceline status"
    body = json.dumps({"model": model, "prompt": "def main():", "max_tokens": 32})
    curl = f"curl http://{http}/v1/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    return chat + where, generate + where, curl if http else status + where


def check_ports(grpc: str, http: str) -> None:
    """Refuses listeners that cannot be bound, before anything starts.

    Raises:
        StackError: one line that names the flag and the address.
    """
    for flag, address, others in (("--grpc", grpc, ()), ("--http", http, (grpc,))):
        if found := port_problem(flag, address, others):
            raise StackError(found.line)


def stop_signal() -> threading.Event:
    """Set by SIGINT and SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def follow(stack: Stack, stopped: threading.Event) -> None:
    """Prints a line whenever a pair fails or comes back.

    Raises:
        StackError: a process of the stack has ended.
    """
    known = {pair.pair_id: pair for pair in stack.pairs()}
    while not stopped.wait(LOOK_S):
        for pair in stack.pairs():
            line = news(known[pair.pair_id], pair)
            known[pair.pair_id] = pair
            if line:
                print_progress(line)
        stack.check()


def described(pair: fleet_pb2.Pair) -> str:
    """One line about a pair that serves."""
    sharing = f"GPU sharing: {pair.gpu_sharing}"
    return f"{pair.pair_id}   {pair.target_address}   {sharing}   metrics http://{pair.metrics_address}/metrics"


def print_progress(line: str) -> None:
    """Prints one step with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


if __name__ == "__main__":
    # Everything of ours has ended, and taking torch down takes a third of a second.
    leave_now(main())
