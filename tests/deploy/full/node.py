"""Programs of JavaScript with the packages that make test-deploy installs beside the environment."""

import subprocess
import sys
from pathlib import Path

from tests.deploy.test_drift import ROOT

PROGRAMS = ROOT / "tests/deploy/resources"
PACKAGES = Path(sys.prefix) / "resources"


def node(program: str, text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of tests/deploy/resources on a text; 1 means that it found something, which it printed.

    Evaluated where the packages are installed, for that is where node looks for what a module imports.
    """
    command = ["node", "--input-type=module", "--eval", (PROGRAMS / program).read_text()]
    done = subprocess.run(command, cwd=PACKAGES, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if done.stdout else 0), done.stderr
    return done
