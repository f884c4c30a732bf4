"""Serves a model on this machine until Ctrl-C: gateway, target and drafter."""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO, cast

from deploy.checkpoints import resolved
from deploy.cluster.node import AUTO, PORTS_PER_PAIR
from deploy.cluster.settings import ClusterSettings
from deploy.flags import arguments, as_typed, flag_given, value_of
from deploy.fleet import news
from deploy.hints import Served, to_try
from deploy.stack import Stack, StackError, StackSettings, StackStoppedError, judged
from deploy.starting import Screen, Unfailing
from services.common.pb.paceline.v1 import fleet_pb2
from services.common.preflight.limits import limit_problem
from services.common.preflight.ports import port_problem
from services.common.preflight.source import Source
from services.common.preflight.text import has_template
from services.common.serving.process import leave_now, leave_when_asked

# Everything has to be gone within three seconds of a signal.
STOP_S = 2.0
LOOK_S = 0.2
BASE_PORT = "--base-port"
DRAFTS = {"dflash": "drafts by a DFlash drafter", "ngram": "n-gram drafts", "none": "no drafts"}


def main() -> int:
    """Starts the stack, prints its addresses, tells what becomes of its pairs until a signal; 1 when it fails."""
    leave_when_asked()
    sys.stdout = cast("TextIO", Unfailing(sys.stdout, sys.stderr))
    chosen, screen = arguments(), Screen()
    asked = stack_settings(chosen)
    try:
        if chosen.title:
            print(f"serving {chosen.title} ({DRAFTS[chosen.proposer]})", flush=True)
        cluster = judged(asked)
        check_limits()
        check_ports(chosen.address, chosen.http, cluster)
        for line in notes(chosen):
            print(f"note: {line}", flush=True)
        settings = resolved(asked, cluster, lambda line: print(f"note: {line}", flush=True))
        stopped = stop_signal()
        with Stack(settings, screen.step, stopped, screen.renew) as stack:
            screen.clear()
            print(f"gateway  {stack.gateway_address}   metrics http://{stack.gateway_metrics[0]}/metrics")
            served = described_stack(chosen, stack)
            if served.http:
                url = f"{served.scheme}://{served.http}"
                print(f"OpenAI   {url}/v1   page {url}/")
            for pair in stack.pairs():
                print(described(pair))
            print("ready; Ctrl-C stops it. Try, in another terminal:")
            print(*(f"  {line}" for line in to_try(served)), sep="\n", flush=True)
            follow(stack, stopped, screen.step)
    except StackStoppedError:
        screen.clear()
        return 0
    except StackError as error:
        screen.clear()
        print(as_typed(str(error), chosen.typed), flush=True)
        return 1
    return 0


def stack_settings(chosen: argparse.Namespace) -> StackSettings:
    """What a command line asks to start."""
    return StackSettings(
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
        api_keys=chosen.api_keys,
        typed=chosen.typed,
    )


def notes(chosen: argparse.Namespace) -> list[str]:
    """What people should know of a command line."""
    unused = chosen.drafter and chosen.proposer != "dflash"
    found = [f"--drafter is not used: {DRAFTS[chosen.proposer]} need none"] if unused else []
    exposed = open_to_all((chosen.address, chosen.http), keyed(chosen))
    return [*found, exposed] if exposed else found


def keyed(chosen: argparse.Namespace) -> bool:
    """Whether callers need a key."""
    return bool(chosen.api_keys) or flag_given(chosen.gateway_flags, "--tenants")


def described_stack(chosen: argparse.Namespace, stack: Stack) -> Served:
    """What a stack that serves has for people to try."""
    return Served(
        address=stack.gateway_address,
        http=stack.gateway_http[0],
        model=stack.settings.model_name,
        chats=has_template(Source(stack.settings.model)),
        tls_cert=value_of(chosen.gateway_flags, "--tls-cert"),
        tls_ca=value_of(chosen.gateway_flags, "--tls-ca"),
        keyed=keyed(chosen),
        key_file=chosen.api_key_file,
    )


def open_to_all(addresses: Sequence[str], keyed: bool) -> str:
    """A line about listeners that others reach without a key; empty when there are none."""
    if keyed:
        return ""
    local = ("127.", "localhost:", "[::1]:", "::1:", "unix:")
    found = [address for address in addresses if address and not address.startswith(local)]
    return (
        f"anybody who reaches {' or '.join(found)} may call: give --api-key-file FILE, or listen on 127.0.0.1"
        * bool(found)
    )


def check_limits() -> None:
    """Refuses limits of the shell under which Ray or a service would hang or end without a word of the reason.

    Raises:
        StackError: one line that names the limit.
    """
    if found := limit_problem():
        raise StackError(found.line)


def check_ports(grpc: str, http: str, cluster: ClusterSettings | None = None) -> None:
    """Refuses listeners that cannot be bound, before anything starts; with `cluster` those of controller and pairs too.

    Raises:
        StackError: one line that names the flag and the address.
    """
    earlier: list[str] = []
    for flag, address in [("--grpc", grpc), ("--http", http), *_listeners(cluster)]:
        if found := port_problem(flag, address, earlier):
            free = "give another first port; 0 takes free ones" if flag == BASE_PORT else found.remedy
            raise StackError(replace(found, remedy=free).line)
        earlier.append(address)


def _listeners(cluster: ClusterSettings | None) -> list[tuple[str, str]]:
    """Flags and addresses of what a controller and its pairs listen on."""
    if cluster is None:
        return []
    host = {"": "127.0.0.1", AUTO: "0.0.0.0"}.get(cluster.host, cluster.host)
    ports = range(cluster.base_port, cluster.base_port + PORTS_PER_PAIR * cluster.pairs) if cluster.base_port else ()
    ours = [("--listen", cluster.listen), ("--health", cluster.health), ("--metrics", cluster.metrics)]
    return ours + [(BASE_PORT, f"{host}:{port}") for port in ports]


def stop_signal() -> threading.Event:
    """Set by SIGINT and SIGTERM, and by SIGHUP, which a closed terminal sends, unless nohup has it ignored."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
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
