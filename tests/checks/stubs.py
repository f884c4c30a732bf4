"""Generates the stubs of the wire contract, or proves that the committed ones are current.

Runs in the environment of requirements/generate.txt, with nothing of the project's own imported.
"""

import os
import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("paceline/v1")
STUBS = Path("services/common/pb")
CLIENT = Path("paceline/v1")
"""Where the client's own stubs lie, as protoc writes them; they hold the public contract only."""
PUBLIC = ("types", "inference")


def generate(folder: Path) -> dict[Path, str]:
    """Runs protoc into folder; returns the text of each generated file by its path in the repository."""
    outputs = ("python_out=", "grpc_python_out=", "mypy_out=quiet:", "mypy_grpc_out=quiet:")
    includes = [ROOT / "proto", resources.files("grpc_tools") / "_proto"]
    sources = sorted(str(path) for path in (ROOT / "proto" / PACKAGE).glob("*.proto"))
    arguments = [f"-I{include}" for include in includes] + [f"--{output}{folder}" for output in outputs]
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if protoc.main(["protoc", *arguments, *sources]) != 0:
        raise SystemExit("paceline: protoc failed")
    written = sorted(folder.rglob("*_pb2*.py*"))
    services = {STUBS / path.relative_to(folder): rewrite(path.read_text()) for path in written}
    return services | {CLIENT / path.name: path.read_text() for path in written if path.name.split("_pb2")[0] in PUBLIC}


def rewrite(text: str) -> str:
    """Imports by the path from the repository root; names on the wire stay as they are."""
    text = re.sub(r"^from paceline\.v1 import", "from services.common.pb.paceline.v1 import", text, flags=re.MULTILINE)
    return re.sub(r"(?<![\w./])paceline\.v1\.(\w+_pb2)", r"services.common.pb.paceline.v1.\1", text)


def main(action: str) -> int:
    """Writes the stubs, or compares them; 1 when they differ."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = generate(Path(folder))
    folders = (STUBS / PACKAGE, CLIENT)
    present = {path.relative_to(ROOT) for one in folders for path in (ROOT / one).glob("*_pb2*.py*")}
    if action == "write":
        for name, text in wanted.items():
            (ROOT / name).write_text(text)
        for name in present - wanted.keys():
            (ROOT / name).unlink()
        return 0
    stale = [name for name, text in wanted.items() if name not in present or (ROOT / name).read_text() != text]
    stale += sorted(present - wanted.keys())
    for name in stale:
        sys.stderr.write(f"stale stub: {name}; run `make proto` and commit\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
