"""A headless Chromium in front of the gateway's page; without one the test fails, for a skipped one proves nothing."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.peers import REPOSITORY

PACKAGES = REPOSITORY / ".venv-page"
UNPACKED = PACKAGES / "chromium"
SCRIPT = REPOSITORY / "tests/interop/page/browse.mjs"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 90.0


def chromium() -> tuple[str, Mapping[str, str]]:
    """The browser of this machine, or the one that was unpacked, and what its environment needs."""
    for name in NAMES:
        if path := shutil.which(name):
            return path, {}
    path = str(UNPACKED / "usr/lib/chromium/chromium-headless-shell")
    assert Path(path).exists(), "no Chromium: tests/interop/page/chromium.sh .venv-page/chromium"
    libraries = {str(one.parent) for one in (UNPACKED / "usr/lib").rglob("*.so*")}
    return path, {"LD_LIBRARY_PATH": ":".join(sorted(libraries)), "FONTCONFIG_FILE": str(UNPACKED / "fonts.conf")}


async def browse(scenario: str, address: str, **given: Any) -> Any:
    """Plays a scenario of scenarios.mjs on the page of a gateway; what was seen there.

    The browser must have had nothing to complain of, such as a breach of the page's policy.
    """
    browser, needs = chromium()
    told = {"url": f"http://{address}/", "packages": str(PACKAGES), "browser": browser, "needs": needs, **given}
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec("node", str(SCRIPT), scenario, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(PATIENCE_S):
            output, problem = await node.communicate(json.dumps(told).encode())
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    assert node.returncode == 0, problem.decode()
    seen = json.loads(output)
    complaints = seen.pop("complaints")
    assert complaints == given.get("complaints", [])
    return seen
