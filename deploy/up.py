"""Serves a model on this machine until Ctrl-C: gateway, target and drafter."""

import argparse
import itertools
import json
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from deploy.checkpoints import resolved
from deploy.fleet import news
from deploy.shipped import shipped_pair, usual_pair
from deploy.stack import Stack, StackError, StackSettings, StackStoppedError, judged
from deploy.starting import Screen
from paceline import bundle
from paceline.commands.connection import ADDRESS
from services.common.pb.paceline.v1 import fleet_pb2
from services.common.preflight.ports import port_problem
from services.common.serving.process import leave_now, leave_when_asked

HTTP = "127.0.0.1:8000"
# Everything has to be gone within three seconds of a signal.
STOP_S = 2.0
LOOK_S = 0.2
ALIASES = {
    "--max-model-len": "--context-limit",
    "--max-num-seqs": "--slots",
    "--served-model-name": "--name",
    "--gpu-memory-utilization": "--memory-fraction",
    "--ssl-certfile": "--tls-cert",
    "--ssl-keyfile": "--tls-key",
    "--ssl-ca-certs": "--tls-ca",
    "--allowed-origins": "--http-cors-origins",
}
"""What other servers call settings of ours."""
GATEWAYS = frozenset({
    "attempts", "default_max_tokens", "generation_config", "http_cors_origins", "http_page", "max_queued_tokens",
    "max_request_s", "max_requests", "outbox_tokens", "report_cached_tokens", "tenants", "tls_ca", "tls_cert",
    "tls_key", "vllm_engine", "wait_target_s",
})  # fmt: skip
"""Settings of the gateway that this command takes."""
DRAFTS = {"dflash": "drafts by a DFlash drafter", "ngram": "n-gram drafts", "none": "no drafts"}


def arguments() -> argparse.Namespace:
    """The command line; without a model it is that of the usual pair."""
    passed_on = (
        "Flags of the gateway that are taken, too: "
        + ", ".join(f"--{name.replace('_', '-')}" for name in sorted(GATEWAYS))
        + ". All other flags are those that python -m deploy.cluster --help lists, such as --target.widths 1,4."
    )
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
    parser.add_argument("--host", default="", help="host of OpenAI's API; default: that of --http")
    parser.add_argument("--port", default="", help="port of OpenAI's API; default: that of --http")
    parser.add_argument("--slots", type=int, default=16, help="requests that a pair runs at once; default: %(default)s")
    parsed, rest = parser.parse_known_args(in_our_words(sys.argv[1:]))
    if parsed.host or parsed.port:
        host, _, port = (parsed.http or HTTP).rpartition(":")
        parsed.http = f"{parsed.host or host}:{parsed.port or port}"
    parsed.gateway_flags, others = gateways_own(rest)
    parsed.cluster_flags = ["--slots", str(parsed.slots), *others]
    pair = shipped_pair(parsed.model) if parsed.model else usual_pair()
    parsed.title = pair.title if pair else ""
    if pair:
        parsed.model, parsed.name = pair.model, parsed.name or pair.name
        if parsed.proposer in ("", "dflash"):
            parsed.drafter = parsed.drafter or pair.drafter
    parsed.name = parsed.name or parsed.model.rstrip("/").rsplit("/", 1)[-1]
    parsed.proposer = parsed.proposer or ("dflash" if parsed.drafter else "ngram")
    return parsed


def in_our_words(words: Sequence[str]) -> list[str]:
    """Flags as other servers name them, by the names that they have here."""
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        found.append(ALIASES.get(name, name) + equals + value)
    return found


def gateways_own(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags that are a gateway's settings, and all others: clients meet the gateway's TLS and limits alone."""
    mine: list[str] = []
    others: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        setting = name.removeprefix("--").replace("-", "_")
        kept = mine if setting.removesuffix("_file") in GATEWAYS else others
        kept.append(word)
        if name.startswith("--") and not equals:
            kept.extend(itertools.islice(left, 1))
    return mine, others


def main() -> int:
    """Starts the stack, prints its addresses, tells what becomes of its pairs until a signal; 1 when it fails."""
    leave_when_asked()
    chosen, screen = arguments(), Screen()
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
        gateway_flags=["--http", chosen.http, *chosen.gateway_flags],
    )
    scheme = "https" if any(flag.startswith("--tls-cert") for flag in chosen.gateway_flags) else "http"
    try:
        if chosen.title:
            print(f"serving {chosen.title} ({DRAFTS[chosen.proposer]})", flush=True)
        cluster = judged(asked)
        check_ports(chosen.address, chosen.http)
        if exposed := open_to_all((chosen.address, chosen.http), chosen.gateway_flags):
            print(f"note: {exposed}", flush=True)
        settings = resolved(asked, cluster, lambda line: print(f"note: {line}", flush=True))
        stopped = stop_signal()
        with Stack(settings, screen.step, stopped, screen.renew) as stack:
            screen.clear()
            print(f"gateway  {stack.gateway_address}   metrics http://{stack.gateway_metrics[0]}/metrics")
            if stack.gateway_http[0]:
                print(f"OpenAI   {scheme}://{stack.gateway_http[0]}/v1   page {scheme}://{stack.gateway_http[0]}/")
            for pair in stack.pairs():
                print(described(pair))
            print("ready; Ctrl-C stops it. Try, in another terminal:")
            lines = to_try(stack.gateway_address, stack.gateway_http[0], settings.model_name, scheme)
            print(*(f"  {line}" for line in lines), sep="\n", flush=True)
            follow(stack, stopped, screen.step)
    except StackStoppedError:
        screen.clear()
        return 0
    except StackError as error:
        screen.clear()
        print(error, flush=True)
        return 1
    return 0


def to_try(address: str, http: str, model: str, scheme: str = "http") -> tuple[str, str, str]:
    """Three commands for a gateway and its HTTP listener, if it has one, as a user of this copy types them."""
    if bundle.start() == "make up":
        where = "" if address == ADDRESS else f" ADDRESS={address}"
        chat, generate, status = "make chat", 'make generate PROMPT="def main():"', "make status"
    else:
        where = "" if address == ADDRESS else f" --address {address}"
        chat, generate, status = "paceline chat", 'paceline generate "def main():"', "paceline status"
    body = json.dumps({"model": model, "prompt": "def main():", "max_tokens": 32})
    curl = f"curl {scheme}://{http}/v1/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"
    return chat + where, generate + where, curl if http else status + where


def open_to_all(addresses: Sequence[str], gateway_flags: Sequence[str]) -> str:
    """A line about listeners that others reach without a key; empty when there are none."""
    if any(flag.startswith("--tenants") for flag in gateway_flags):
        return ""
    local = ("127.", "localhost:", "[::1]:", "unix:")
    found = [address for address in addresses if address and not address.startswith(local)]
    return f"anybody who reaches {' or '.join(found)} may call: give --tenants FILE, or listen on 127.0.0.1" * bool(
        found
    )


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


def follow(stack: Stack, stopped: threading.Event, tell: Callable[[str], object]) -> None:
    """Tells a line whenever a pair fails or comes back.

    Raises:
        StackError: a process of the stack has ended.
    """
    known = {pair.pair_id: pair for pair in stack.pairs()}
    while not stopped.wait(LOOK_S):
        for pair in stack.pairs():
            line = news(known[pair.pair_id], pair)
            known[pair.pair_id] = pair
            if line:
                tell(line)
        stack.check()


def described(pair: fleet_pb2.Pair) -> str:
    """One line about a pair that serves."""
    sharing = f"GPU sharing: {pair.gpu_sharing}"
    return f"{pair.pair_id}   {pair.target_address}   {sharing}   metrics http://{pair.metrics_address}/metrics"


if __name__ == "__main__":
    # Everything of ours has ended, and taking torch down takes a third of a second.
    leave_now(main())
