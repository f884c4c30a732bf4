"""What the image tests need of the machine, told in one sentence instead of as the error of a tool."""

import os
import shutil

import pytest

from tests.image.image import install


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    missing = [tool for tool in ("mmdebstrap", "bwrap") if shutil.which(tool) is None]
    if missing or os.getuid():
        pytest.exit(
            f"test-image needs Linux, root and the commands mmdebstrap and bwrap; missing: {missing or 'root'}", 1
        )
    install(("worker", "gateway"))
