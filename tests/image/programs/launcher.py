"""Compiles Triton's launcher and loads it against a driver made here: every function that it leaves undefined, empty.

Prints how many functions of the driver it wants, and what the launcher offers, as JSON.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import triton.backends.nvidia.driver as driver

SOURCE = Path(driver.__file__).parent


def undefined(folder: Path) -> list[str]:
    """Functions of the CUDA driver that the compiled launcher calls."""
    object_file = folder / "driver.o"
    includes = [f"-I{sysconfig.get_paths()['include']}", f"-I{SOURCE / 'include'}"]
    subprocess.run(["gcc", "-c", "-fPIC", *includes, SOURCE / "driver.c", "-o", object_file], check=True)
    symbols = subprocess.run(["nm", "-u", object_file], check=True, capture_output=True, text=True).stdout.split()
    return [name for name in symbols if name.startswith("cu") and name[2].isupper()]


def stub(folder: Path, names: list[str]) -> None:
    """Builds libcuda.so.1 with these functions."""
    source = folder / "stub.c"
    source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library], check=True)


def main() -> None:
    if "LD_LIBRARY_PATH" not in os.environ:
        folder = Path(tempfile.mkdtemp())
        names = []
        if os.access("/usr/bin/gcc", os.X_OK) and "/usr/bin" in os.environ["PATH"].split(":"):
            names = undefined(folder)
            stub(folder, names)
        variables = {"LD_LIBRARY_PATH": str(folder), "TRITON_LIBCUDA_PATH": str(folder), "WANTED": str(len(names))}
        # The loader reads its path when a process begins.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})
    found = driver.CudaUtils()
    functions = [name for name in dir(found) if not name.startswith("_")]
    sys.stdout.write(json.dumps({"wanted": int(os.environ["WANTED"]), "functions": functions}))


main()
