"""Functions of the gateway's page that need no browser, in node."""

import os
import subprocess

from services.gateway.http.endpoints.page import FOLDER
from tests.interop.browser import SCRIPT


def test_what_needs_no_browser_holds_in_node() -> None:
    command = ["node", "--test", str(SCRIPT.with_name("units.test.mjs"))]
    environment = {**os.environ, "FOLDER": str(FOLDER)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "# skipped 0" in done.stdout
