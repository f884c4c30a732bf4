"""A release under load, watched by a real Prometheus: counters agree with clients, every expression has data."""

import asyncio
import math
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import grpc
import pytest

from deploy.grafana.boards import BOARDS
from deploy.stack import describe_target
from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from services.gateway.tenancy.tenants import digest
from tests.deploy.full.charts import variant
from tests.deploy.full.load import Received, ask, drive, request
from tests.deploy.full.pictures import concrete, draw
from tests.deploy.full.prometheus import Prometheus, serving
from tests.deploy.full.release import SECRET, Release, running, wait_routed
from tests.deploy.test_drift import ROOT, rules
from tests.faults.rest import scrape
from tests.unit.common.serving.certificates import Authority

SETTLED_S = 120.0
SCRAPED_S = 90.0
TRIES = 3
# Of the chart's ports of a worker, which of a Release's are theirs.
PORTS = {"9100": 2, "50062": 4, "50063": 5}
ELSEWHERE = re.compile(r"\b(?:DCGM|kube|container)_|\bpaceline_(?:accepted_nodes|accepted_children|tree_rounds)_")
"""Of other exporters, of GPUs and of what Kubernetes wants; and what only rounds of trees count."""

ASKS_A_CLUSTER = tuple(f"kubectl {verb} " for verb in ("get", "describe", "scale", "logs", "exec"))
NOT_HERE = {"started anew", "unexpected error", "fleet source failed"}
"""What runbooks look for in logs and does not happen here: a pair that hangs, a defect, a controller that is away."""
SELECTOR = re.compile(r"\bpaceline[a-z0-9_:]+(?:\{[^}]*\})?")

NAMELESS = {'paceline_gateway_ready_targets{model_name=~"unknown|"}'}
"""What a release has only before its first pair is ready."""
UNSEEN = {"paceline:workers_wanted:min30m", 'paceline:releases:present1h{release=""}'}
"""What needs kube-state-metrics, or scrapes that do not tell of pods: promtool's cases have both."""

pytestmark = pytest.mark.timeout(600)


@dataclass
class Watched:
    """The parts; edge is a gateway with TLS that takes one request at a time, trusted is the CA file's content.

    keyed is a gateway that wants a key, of those in the file `keys`.
    """

    release: Release
    prometheus: Prometheus
    edge: str
    trusted: bytes
    keyed: str
    keys: Path
    since: float


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("live")
    authority = Authority.make()
    certificate, key = authority.issue(folder / "tls", "gateway")
    trusted = Path(authority.write(folder / "ca.pem")).read_bytes()
    with running(workers=2, gateways=2) as release:
        # It is given no name of a model: it serves whatever the pairs do.
        flags = (f"--tls-cert={certificate}", f"--tls-key={key}", "--max-requests=1", "--model=")
        edge = release.gateway("edge", *flags)
        keys = tenants(folder)
        keyed = release.gateway("keyed", f"--tenants={keys}")
        watched = [*release.scraped, ("edge", [edge["metrics"]]), ("keyed", [keyed["metrics"]])]
        with serving(folder, watched) as prometheus:
            yield Watched(release, prometheus, edge["grpc"], trusted, keyed["grpc"], keys, time.time())


def tenants(folder: Path) -> Path:
    """A file with one tenant, whose key nobody shows."""
    file = folder / "tenants.toml"
    file.write_text(f'[[tenant]]\nname = "a"\nkey_sha256 = ["{digest("a key that nobody shows")}"]\n')
    return file


def counters(release: Release) -> dict[str, float]:
    """Counters of targets and gateways, summed over pods; names without prefix and suffix."""
    total: dict[str, float] = {}
    for address in [*release.addresses("worker", 4), *release.addresses("gateway", 2)]:
        for name, value in scrape(address).items():
            short = name.removeprefix("paceline_").removesuffix("_total")
            total[short] = total.get(short, 0.0) + value
    return total


def settled(release: Release) -> dict[str, float]:
    """Counters when every committed token has been accounted for, which takes a target some seconds."""
    end = time.monotonic() + SETTLED_S
    while time.monotonic() < end:
        found = counters(release)
        kept = found.get("emitted_tokens", 0.0) + found.get("discarded_tokens", 0.0)
        if found["committed_tokens"] == kept and not found["running_requests"] + found["waiting_requests"]:
            return found
        time.sleep(0.5)
    raise AssertionError(f"committed {found['committed_tokens']}, accounted for {kept}")


def test_counters_are_what_clients_received(
    watched: Watched, seed: int, report_counts: Callable[[str, int], None]
) -> None:
    """350 streams to their end while a drafter dies, then 150 of which every third is cancelled."""
    release, gateways = watched.release, watched.release.addresses("gateway", 0)
    print(f"seed {seed}")
    for _ in range(TRIES):
        before = counters(release)
        whole = asyncio.run(drive(gateways, 350, seed=seed, on={150: lambda: release.kill("DrafterHost")}))
        after = settled(release)
        found = {name: after[name] - before.get(name, 0.0) for name in after}
        assert whole.statuses == {"OK": 350}
        # What was on its way from a target that a starved machine held up is emitted there and made anew elsewhere.
        if not found["gateway_migrations"]:
            break
    assert found["gateway_delivered_tokens"] == found["emitted_tokens"] == whole.tokens
    assert found["gateway_requests"] == found["requests"] == 350
    told = [final.speculation for final in whole.finals]
    assert sum(final.usage.completion_tokens for final in whole.finals) == whole.tokens
    assert found["spec_decode_num_draft_tokens"] == sum(each.drafted for each in told) > 0
    assert found["spec_decode_num_accepted_tokens_per_pos"] == sum(each.accepted for each in told) > 0
    assert found["prompt_tokens"] == sum(final.usage.prompt_tokens for final in whole.finals)
    assert found["cached_prompt_tokens"] == sum(final.usage.cached_tokens for final in whole.finals)

    for _ in range(TRIES):
        part = asyncio.run(drive(gateways, 150, seed=seed + 1, cancel_every=3))
        before, after = after, settled(release)
        assert part.statuses == {"OK": 100, "CANCELLED": 50}
        new = {name: after[name] - before.get(name, 0.0) for name in after}
        if not new["gateway_migrations"]:
            break
    assert part.tokens - part.unsure <= new["gateway_delivered_tokens"] == new["emitted_tokens"]
    assert new["discarded_tokens"] > 0
    report_counts("reconciled_tokens", int(whole.tokens + new["committed_tokens"]))


async def overload(watched: Watched, seed: int) -> Received:
    """More requests than the edge takes."""
    received, chance = Received(), random.Random(seed)
    credentials = grpc.ssl_channel_credentials(watched.trusted)
    async with connect(watched.edge, credentials) as channel:
        stub: inference_pb2_grpc.InferenceServiceAsyncStub = inference_pb2_grpc.InferenceServiceStub(channel)  # type: ignore[assignment]
        for _ in range(5):
            await asyncio.gather(*(ask(stub, request(chance, 24), received) for _ in range(4)))
            await asyncio.sleep(1.5)
    return received


@pytest.fixture(scope="module")
def eventful(watched: Watched, seed: int) -> Watched:
    """Everything that a panel counts has happened: refusals, fallbacks, a migration, a restart."""
    refused = asyncio.run(overload(watched, seed))
    assert refused.statuses["RESOURCE_EXHAUSTED"] > 0
    strange = asyncio.run(drive([watched.keyed], 3, seed=seed))
    assert strange.statuses == {"UNAUTHENTICATED": 3}
    watched.keys.write_text("no tenant")
    release, gateways = watched.release, watched.release.addresses("gateway", 0)
    moved = asyncio.run(
        drive(gateways, 60, seed=seed, tokens=200, on={20: lambda: release.kill("TargetHost")}, cancel_every=10)
    )
    assert moved.statuses == {"OK": 54, "CANCELLED": 6}
    wait_routed(release)
    asyncio.run(drive(gateways, 60, seed=seed, on={30: lambda: release.kill("DrafterHost")}))
    time.sleep(3)
    return watched


def has_data(prometheus: Prometheus, expression: str) -> bool:
    """Some sample that is a number, now or within the time that scrapes and rules take."""
    end = time.monotonic() + SCRAPED_S
    while time.monotonic() < end:
        if any(not math.isnan(float(sample["value"][1])) for sample in prometheus.query(expression)):
            return True
        time.sleep(1)
    return False


def test_every_pod_is_scraped(eventful: Watched) -> None:
    """The drafter that was killed last as well, once it is back."""
    end = time.monotonic() + SCRAPED_S
    while time.monotonic() < end:
        health = [target["health"] for target in eventful.prometheus.targets()]
        if set(health) == {"up"}:
            break
        time.sleep(1)
    assert health == ["up"] * (2 * 3 + 2 + 2)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_has_data(eventful: Watched, board: object, report_counts: Callable[[str, int], None]) -> None:
    (found,) = [each for each in BOARDS if each is board]
    expressions = [(panel.title, expression) for panel in found.panels for expression, _ in panel.expressions]
    filled = [each for each in expressions if not ELSEWHERE.search(each[1])]
    empty = [each for each in filled if not has_data(eventful.prometheus, concrete(each[1], "5m"))]
    assert empty == []
    for _, expression in {*expressions} - {*filled}:
        assert eventful.prometheus.query(concrete(expression, "5m")) == [], "it is PromQL, and nobody counts it here"
    report_counts("panel_expressions", len(filled))


def test_every_rule_is_healthy_and_reads_data(eventful: Watched, report_counts: Callable[[str, int], None]) -> None:
    loaded = [rule for group in eventful.prometheus.groups() for rule in group["rules"]]
    assert len(loaded) == len(list(rules()))
    assert {rule["health"] for rule in loaded} == {"ok"}
    selectors = {selector for rule in rules() for selector in SELECTOR.findall(rule["expr"])}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    wanted = sorted(selectors | recorded)
    without = NAMELESS | UNSEEN
    assert [each for each in wanted if each not in without and not has_data(eventful.prometheus, each)] == []
    assert set(wanted) >= without
    defects = eventful.prometheus.query('sum(paceline_gateway_requests_total{code="INTERNAL"})')
    assert [float(sample["value"][1]) for sample in defects] == [0.0]
    report_counts("rule_selectors", len(wanted))


def told(release: Release, port: str) -> str:
    """What the first worker's port of the chart serves to a scrape."""
    with urllib.request.urlopen(f"http://{release.addresses('worker', PORTS[port])[0]}/metrics", timeout=30) as page:
        return str(page.read().decode())


def logs(release: Release) -> str:
    """What all containers have written so far."""
    return "".join(
        path.read_text(errors="replace") for end in ("out", "log") for path in release.folder.glob(f"*.{end}")
    )


def paceline(release: Release, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the package, at the first gateway."""
    command = [sys.executable, "-m", "paceline", *words, "--address", release.addresses("gateway", 0)[0]]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_every_command_of_a_runbook_runs_or_needs_a_cluster(
    eventful: Watched, report_counts: Callable[[str, int], None]
) -> None:
    """Panels are asked, metrics are scraped, fields and logs read; the rest asks Kubernetes or a driver."""
    panels = {
        f"{board.title.rpartition(' ')[2]} dashboard: {panel.title}": panel
        for board in BOARDS
        for panel in board.panels
    }
    target = describe_target(eventful.release.addresses("worker", 3)[0], SECRET)
    run = 0
    for page in sorted((ROOT / "docs/operate").glob("*.md")):
        for command in page.read_text().split("```")[1].strip().splitlines():
            scraped = re.search(r"POD:(\d+)/proxy/metrics \| grep (\S+)", command)
            field = command.partition("Describe on the target: ")[2]
            searched = re.search(r"^kubectl logs \S+ .*\| grep '(.+)'$", command)
            if command in panels:
                texts = [concrete(expression, "5m") for expression, _ in panels[command].expressions]
                assert all(has_data(eventful.prometheus, text) for text in texts), command
            elif scraped:
                assert re.search(rf"^{scraped[2]}", told(eventful.release, scraped[1]), re.MULTILINE), command
            elif command.startswith("paceline "):
                ran = paceline(eventful.release, *command.split()[1:])
                assert ran.returncode == 0, (command, ran.stderr)
            elif searched and searched[1] not in NOT_HERE:
                assert searched[1] in logs(eventful.release), command
            elif field:
                assert reduce(getattr, field.split("."), target) is not None, command
            else:
                assert command.startswith(ASKS_A_CLUSTER), f"{page.name}: {command}"
                continue
            run += 1
    report_counts("runbook_commands", run)


def test_the_scaler_s_query_counts_the_requests_of_these_pods(eventful: Watched) -> None:
    (scaler,) = [document for document in variant("worker-autoscaling") if document["kind"] == "ScaledObject"]
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    here = query.replace('"model"', '"embedded"')
    assert here.count("embedded") == 2
    assert has_data(eventful.prometheus, here)


def test_boards_are_drawn_from_the_same_queries(eventful: Watched) -> None:
    folder = ROOT / "build/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        assert draw(board, eventful.prometheus, eventful.since, folder).stat().st_size > 20_000
