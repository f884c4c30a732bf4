"""What the documents say is held against the code and against each other."""

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from deploy.grafana.boards import BOARDS
from services.common.metrics.catalogue import every_metric
from services.common.pb.paceline.v1 import target_pb2
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.logs import JsonFormatter
from services.drafter.settings import DrafterSettings
from services.gateway.settings import GatewaySettings
from services.target.settings import TargetSettings
from tests.support.cases import each

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "SECURITY.md", "models/README.md"))]
MARKDOWN += [*(ROOT / "services").rglob("*.md"), *(ROOT / "deploy").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
GENERATED = {"pb", "v1"}
RUNBOOKS = sorted((ROOT / "docs/operate").glob("*.md"))
METRICS = {spec.full_name: spec for spec in every_metric()}
SETTINGS = {"gateway": GatewaySettings, "target": TargetSettings, "drafter": DrafterSettings}
LOADERS = {"config", "help", "print-config"}
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?:\s?%)?(?!\w)")
NAMES = re.compile(
    r"```.*?```|`[^`]*`|<!--.*?-->|\]\([^)]*\)|https?://\S+"  # code and links
    r"|\b[A-Za-z]\w*[-/:]\d[\w.-]*|\b\d{4}-\d\d(?:-\d\d)?\b|\b\d+\.\d+\.\d+\b",  # names, dates and versions
    re.DOTALL,
)
ENVIRONMENT = re.compile(r"\bos\.environ\b|\bgetenv\b")
PROTOBUF = re.compile(r"^\s*(?:from|import) (?:services\.common\.pb|google\.protobuf)", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sections(text: str) -> list[str]:
    """Paragraphs and whole lists."""
    return re.split(r"\n\s*\n", text)


def rule(name: str) -> str:
    """One rule of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return next(part for part in re.split(r"\n- ", text) if part.startswith(f"**{name}"))


def files_named(text: str) -> Iterator[Path]:
    """Source files that a text names, with {one,two} as a shell reads it; all of a folder."""
    for name in re.findall(r"`(services/[\w/{},]+(?:\.py)?)`", text):
        before, _, rest = name.partition("{")
        several, _, after = rest.partition("}")
        for one in several.split(",") if several else [""]:
            path = ROOT / f"{before}{one}{after}"
            assert path.exists(), f"{named(path)} is named and does not exist"
            yield from path.rglob("*.py") if path.is_dir() else [path]


def sentences(text: str) -> Iterator[str]:
    """What stands between full stops, colons and semicolons, without tables and code."""
    prose = [line for line in NAMES.sub("X", text).splitlines() if not line.startswith(("|", "    ", "#"))]
    for part in sections("\n".join(prose)):
        for item in re.split(r"\n\s*(?:[-*]|\d+\.) ", part):
            yield from re.split(r"(?<=[.!?;:])\W*\s+", " ".join(item.split()))


def overloaded(text: str) -> list[str]:
    """Sentences with more than two numbers."""
    return [sentence for sentence in sentences(text) if len(NUMBER.findall(sentence)) > 2]


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a module, of what it holds, and below its fields."""
    for node in ast.walk(ast.parse(path.read_text())):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                yield inspect.cleandoc(str(child.value.value))


@cache
def logged() -> str:
    """The texts of all calls that log in services and deploy."""
    calls = []
    for folder in ("services", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text())) if "log" in path.read_text().lower() else ()
            calls += [
                ast.unparse(node)
                for node in nodes
                if isinstance(node, ast.Call) and "log" in ast.unparse(node.func).lower()
            ]
    return "\n".join(calls)


@each("page", PAGES)
def test_a_promise_of_one_text_on_or_off_names_the_dtype_that_does_not_keep_it(page: Path) -> None:
    promises = [part for part in sections(page.read_text()) if re.search(r"\bon\s+or\s+off\b", part)]
    assert all(re.search("bf16|bfloat16", part) for part in promises), promises


@each("page", RUNBOOKS)
def test_a_runbook_names_reasons_that_the_catalogue_has(page: Path) -> None:
    for part in sections(page.read_text()):
        for metric, reasons in re.findall(r"`?(\w+)`? by reason[^:]*:((?:[^`]*`\w+` [^`]*)+)", part):
            spec = METRICS[metric.removesuffix("_total")]
            assert set(re.findall(r"`(\w+)`", reasons)) <= set(spec.values), metric


@each("page", RUNBOOKS)
def test_a_runbook_names_metrics_and_alerts_that_exist(page: Path) -> None:
    text = page.read_text()
    alerts = re.findall(r"alert: (\w+)", (ROOT / "deploy/prometheus/rules.yaml").read_text())
    assert set(re.findall(r"\bPaceline[A-Z]\w+", text)) <= set(alerts)
    for name in re.findall(r"`(paceline_\w+)", text):
        assert name.removesuffix("_total") in METRICS, name


def test_the_reasons_of_quarantines_are_all_told() -> None:
    text = (ROOT / "docs/operate/pair-degraded.md").read_text()
    for metric in ("paceline_drafter_quarantines", "paceline_drafter_refusals"):
        assert metric in text
        assert all(f"`{reason}`" in text for reason in METRICS[metric].values), metric


@each("page", RUNBOOKS)
def test_a_runbook_reads_panels_metrics_fields_and_logs_that_exist(page: Path) -> None:
    panels = {(board.title.rpartition(" ")[2], panel.title) for board in BOARDS for panel in board.panels}
    commands = page.read_text().split("```")[1].strip().splitlines()
    for command in commands:
        board, found, panel = command.partition(" dashboard: ")
        assert not found or (board, panel) in panels, command
        field = command.partition("Describe on the target: ")[2].partition(".")[0]
        assert not field or field in target_pb2.TargetServiceDescribeResponse.DESCRIPTOR.fields_by_name, command
        searched = command.partition("| grep ")[2] or command.partition("grep -h ")[2]
        if searched.startswith("paceline_"):
            assert any(name.startswith(searched) for name in METRICS), command
        elif searched:
            (text,) = shlex.split(searched)
            assert told(text), f"{command}: no line has {text!r}"


def told(text: str) -> bool:
    """Whether lines of the services hold a text: by what they log, and as the formatter of all of them writes it."""
    field = re.fullmatch('"(message|service)": "(.+)"', text)
    if field is None:
        return text in logged()
    message, service = (field[2] if field[1] == each else "any" for each in ("message", "service"))
    written = JsonFormatter(service).line(0.0, "x", message, {}, "", "")
    known = logged() if field[1] == "message" else [path.parent.name for path in ROOT.glob("services/*/__main__.py")]
    return text in written and field[2] in known


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("started anew", True),
        ("started afresh", False),
        ('"message": "request refused"', True),
        ('"message": "request declined"', False),
        ('"message":"request refused"', False),
        ('"service": "drafter"', True),
        ('"service": "draughts"', False),
    ],
)
def test_a_text_that_no_line_has_is_noticed(text: str, is_told: bool) -> None:
    assert told(text) == is_told


def test_it_is_told_how_to_ask_a_target_what_runbooks_read() -> None:
    text = (ROOT / "docs/operate.md").read_text()
    assert f'\\"protocol_version\\": {PROTOCOL_VERSION}, \\"secret\\"' in text
    method = target_pb2.DESCRIPTOR.services_by_name["TargetService"].methods_by_name["Describe"]
    assert f" {method.containing_service.full_name}/{method.name}\n" in text


def test_a_runbook_names_no_pod_by_a_number() -> None:
    """The workers are a Deployment."""
    assert not [page.name for page in RUNBOOKS if re.search(r"worker-\d", page.read_text())]


def test_a_runbook_needs_no_tool_that_is_not_there() -> None:
    for page in RUNBOOKS:
        assert "curl " not in page.read_text(), "the images hold no curl"
        assert "paceline doctor" not in page.read_text(), "it is in no image and judges the machine it runs on"


def test_contributing_tells_which_modules_know_no_protobuf() -> None:
    modules = list(files_named(rule("Protobuf stays with those who speak gRPC")))
    assert len(modules) > 50
    knowing = [named(path) for path in modules if PROTOBUF.search(path.read_text())]
    assert not knowing


def test_contributing_tells_which_modules_use_the_environment() -> None:
    told = {named(path) for path in files_named(rule("Collaborators come through constructors"))}
    sources = (ROOT / "services").rglob("*.py")
    using = {named(path) for path in sources if ENVIRONMENT.search(path.read_text())}
    assert using == told


def test_every_public_model_has_the_line_that_serves_it() -> None:
    rows = [line for line in (ROOT / "docs/models.md").read_text().splitlines() if line.startswith("| [")]
    assert len(rows) >= 10
    for row in rows:
        named_here = re.findall(r"https://huggingface\.co/([\w.-]+/[\w.-]+)\)", row)
        assert named_here == re.findall(r"paceline serve ([\w.-]+/[\w.-]+)", row)
        assert row.count(" yes ") + row.count(" no ") == 4


@each("page", PAGES)
def test_commands_name_what_exists(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", text, re.MULTILINE)) <= targets
    for module in re.findall(r"python -m ((?:services|deploy|tests|examples|models)\.[a-z_.]+)\b", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@each("page", PAGES)
def test_flags_of_services_are_settings(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for service, rest in re.findall(r"python -m services\.(gateway|target|drafter)\b([^\n`&]*)", text):
        settings = {field.name.replace("_", "-") for field in fields(SETTINGS[service])}
        assert set(re.findall(r"--([a-z-]+)", rest)) <= settings | LOADERS, rest


def test_openai_s_commands_give_every_address_one_meaning() -> None:
    text = (ROOT / "docs/gateway.md").read_text().partition("## OpenAI clients")[2]
    _, gateway, smg = text.split("```")[1].strip().splitlines()
    listens = re.search(r"--grpc (\S+)", gateway)
    asks = re.search(r"grpc://(\S+)", smg)
    assert listens and asks and listens[1] == asks[1]
    assert re.search(r"--targets TARGET\b", gateway) and text.count("HOST:PORT") == 0
    assert "address that it prints beside the pair" in text.replace("\n", " ")


def test_options_that_smg_drops_are_listed() -> None:
    text = (ROOT / "docs/gateway.md").read_text().partition("## OpenAI clients")[2]
    assert all(f"`{option}`" in text for option in ("logit_bias", "logprobs", "best_of", "suffix"))


@each("page", MARKDOWN)
def test_no_line_outside_tables_is_longer_than_200_characters(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), start=1)
    assert [number for number, line in lines if len(line) > 200 and not line.startswith("|")] == []


def test_a_sentence_is_overloaded_from_three_numbers_on() -> None:
    assert overloaded("It took 3 of 4 ms, or 75 %.") == ["It took 3 of 4 ms, or 75 %."]
    assert not overloaded(
        "It took 3 of 4 ms. That is 75 %, as `1, 2, 3` of Qwen3-4B on 2026-11-23 said.\n\n| 1 | 2 | 3 |"
    )


@each("page", MARKDOWN)
def test_no_sentence_of_a_page_has_more_than_two_numbers(page: Path) -> None:
    assert overloaded(page.read_text()) == []


@pytest.mark.parametrize(("page", "most"), [("README.md", 900), ("docs/performance.md", 1500)])
def test_what_is_read_first_stays_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text().split()) <= most


@pytest.mark.parametrize("folder", ["services", "deploy", "paceline", "models", "examples"])
def test_no_sentence_of_a_docstring_has_more_than_two_numbers(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        if not GENERATED & set(path.relative_to(ROOT).parts):
            assert [sentence for text in docstrings(path) for sentence in overloaded(text)] == [], named(path)


DECISIONS = sorted((ROOT / "docs/adr").glob("0*.md"))


def stands(page: Path) -> str:
    """What a decision says of itself below its title: whether it is accepted, and which others it changes."""
    status = re.search(r"^Status: .*?(?=\n\n)", page.read_text(), re.DOTALL | re.MULTILINE)
    assert status is not None, f"{page.name} has no status"
    return status[0]


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert len(set(numbers)) == len(numbers)


def test_a_decision_says_which_later_one_changes_it() -> None:
    told = {page.name: set(re.findall(r"\]\((\d{4}-[^)]*)\)", stands(page))) for page in DECISIONS}
    for page, others in told.items():
        silent = [other for other in others if other < page and page not in told[other]]
        assert not silent, f"{page} names {silent}: their line of status must name it, too"


def test_the_list_of_decisions_has_each_by_its_title() -> None:
    listed = re.findall(r"^- \[(\d{4})\]\((.*)\) (.*)$", (ROOT / "docs/adr/README.md").read_text(), re.MULTILINE)
    titles = [page.read_text().partition("\n")[0].removeprefix("# ").replace("`", "") for page in DECISIONS]
    assert sorted(f"{number} {title}" for number, _, title in listed) == titles
    assert sorted(file for _, file, _ in listed) == [page.name for page in DECISIONS]
