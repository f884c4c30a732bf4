"""Alerts fire when they should and only then, by promtool's own clock."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.full.prometheus import promtool
from tests.deploy.test_drift import ROOT, rules

FOLDER = ROOT / "deploy/prometheus"
FILES = sorted(FOLDER.glob("*.test.yaml"))
pytestmark = pytest.mark.timeout(600)
ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]


def test_rules_are_well_formed() -> None:
    done = promtool("check", "rules", FOLDER / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def read_by(alerts: set[str]) -> list[dict[str, Any]]:
    """Groups of these alerts with what they read of recorded rules; a case judges its own alerts alone."""
    known = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    texts, found = [rule["expr"] for rule in rules() if rule.get("alert") in alerts], set[str]()
    while texts:
        new = {record for record in known.keys() - found if any(record in text for text in texts)}
        texts, found = [known[record] for record in new], found | new
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    wanted = alerts | found
    return [
        {**group, "rules": [rule for rule in group["rules"] if (rule.get("alert") or rule["record"]) in wanted]}
        for group in groups
    ]


def cases() -> Iterator[tuple[str, set[str], dict[str, Any]]]:
    """(file, alerts, its cases that judge these): those evaluate no rule of others, most of what all of them do."""
    for file in FILES:
        whole = yaml.safe_load(file.read_text())
        assert whole["rule_files"] == ["rules.yaml"]
        by_alerts: dict[frozenset[str], list[Any]] = {}
        for test in whole["tests"]:
            named = frozenset(case["alertname"] for case in test.get("alert_rule_test", []))
            by_alerts.setdefault(named, []).append(test)
        for alerts, tests in by_alerts.items():
            yield file.name.partition(".test")[0], set(alerts), {**whole, "tests": tests}


CASES = [
    pytest.param(alerts, tests, id=f"{file}-{'-'.join(sorted(alerts)) or 'expressions'}")
    for file, alerts, tests in cases()
]


@pytest.mark.parametrize(("alerts", "tests"), CASES)
def test_alerts_fire_resolve_and_are_silent_as_written(alerts: set[str], tests: dict[str, Any], tmp_path: Path) -> None:
    asked = any("promql_expr_test" in test for test in tests["tests"])
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] if asked else read_by(alerts)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / "case.test.yaml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", tmp_path / "case.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing_resolved_and_silent() -> None:
    tests = [test for file in FILES for test in yaml.safe_load(file.read_text())["tests"]]
    for alert in ALERTS:
        cases = [[case for case in test.get("alert_rule_test", []) if case["alertname"] == alert] for test in tests]
        outcomes = [[bool(case["exp_alerts"]) for case in found] for found in cases if found]
        assert [True, False] in outcomes, f"{alert} resolves"
        assert [False] in outcomes, f"{alert} is silent"


def broken(expression: str, folder: Path) -> dict[str, list[str]]:
    """The lines by test with which promtool refuses rules whose alerts all have this expression."""
    told: dict[str, list[str]] = {}
    for _, alerts, tests in cases():
        spoilt = [{**rule, "expr": expression} for rule in rules() if rule.get("alert") in alerts]
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "broken", "rules": spoilt}]}))
        (folder / "case.test.yaml").write_text(yaml.safe_dump(tests))
        done = promtool("test", "rules", folder / "case.test.yaml")
        for part in re.split(r"^\s*name: ", done.stdout + done.stderr, flags=re.MULTILINE)[1:]:
            name, *lines = part.splitlines()
            told[name.rstrip(",")] = lines
    return told


@pytest.mark.parametrize("expression", ["vector(1) unless on () vector(1)", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_is_noticed(expression: str, tmp_path: Path) -> None:
    """By a test of its own."""
    told = broken(expression, tmp_path)
    for alert in ALERTS:
        own = [line for name, lines in told.items() if name.startswith(f"{alert} ") for line in lines]
        assert any(line.strip().startswith(f"alertname: {alert},") for line in own), f"{alert}: nothing noticed"
