"""schemathesis asks what the served OpenAPI document allows, and what it does not, of a real stack with tenants."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.interop.peers import REPOSITORY
from tests.interop.talker import KEY, talker

SCHEMATHESIS = REPOSITORY / ".venv-schemathesis/bin/schemathesis"
FULL_S, SAMPLE_CASES, LONGEST_S = 300, 25, 240
"""The whole run takes its seconds; a sample takes so many drawn cases of each operation, however long they take."""
LEFT_OUT = "positive_data_acceptance"
"""Not every valid form is served: the model's name, a role of a message and the context's end stand in no schema."""
SETTINGS = 'checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "503", "504"]\n'
"""No target, and no time left: status_code_conformance holds them to the operations that document them."""


@pytest.mark.xdist_group("tests/integration/deploy/")  # those that start a Ray stay together
def test_no_request_makes_the_gateway_fail_or_leave_its_document(tmp_path: Path, full: bool, seed: int) -> None:
    assert SCHEMATHESIS.exists(), "make test installs schemathesis first"
    sample = ["--phases", "examples,fuzzing", "--max-examples", str(SAMPLE_CASES)]
    much, longest_s = (["--max-time", str(FULL_S)], FULL_S + LONGEST_S) if full else (sample, LONGEST_S)
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with talker() as served:
        address = served.base_url.removesuffix("/v1")
        command = [str(SCHEMATHESIS), "--config-file", "schemathesis.toml", "run", f"{address}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {KEY}", "--checks", "all", "--exclude-checks", LEFT_OUT]
        command += [*much, "--request-timeout", "60", "--continue-on-failure", "--seed", str(seed)]
        command += ["--report", "json", "--report-dir", "report", "--no-color"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=longest_s)
    (told,) = (tmp_path / "report").glob("*.json")
    report = json.loads(told.read_text())
    assert done.returncode == 0, done.stdout
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert report["test_cases"]["generated"] > (5 * FULL_S if full else 200)
    print(report["test_cases"])
