"""Both images on a root of their own: what is installed, imported, compiled and served. `make test-image` runs it.

It has no GPU, no driver and no container runtime: what needs one of them is not shown here.
"""

import json
import re
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from deploy.stack import EMBEDDED
from paceline import Client, Options
from tests.image.dockerfile import DOCKER, ROOT, Dockerfile
from tests.image.image import Image, build
from tests.image.running import serving

MOST_BYTES = 12e9
WAIT_S = 120.0
PROGRAMS = Path(__file__).parent / "programs"
MODELS = {EMBEDDED: "/models"}
PYTHON = "/opt/venv/bin/python"


@pytest.fixture(scope="module", params=["gateway", "worker"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(str(request.param), tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build("gateway", tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build("worker", tmp_path_factory.mktemp("app"))


def locked(name: str) -> dict[str, str]:
    """Version by package of a lock."""
    lines = (ROOT / f"requirements/{name}.lock.txt").read_text().splitlines()
    entries = [line.split()[0].partition("==") for line in lines if line and line[0].isalpha()]
    return {package.lower(): version for package, _, version in entries}


def installed(image: Image) -> dict[str, str]:
    """Version by package of the image's virtual environment, what venv itself brings left out."""
    folders = [str(path) for path in image.root.glob("opt/venv/lib/python3*/site-packages")]
    found = {
        each.metadata["Name"].lower().replace("_", "-").replace(".", "-"): each.version
        for each in metadata.distributions(path=folders)
    }
    return {name: version for name, version in found.items() if name != "pip"}


def test_an_image_holds_its_lock(image: Image) -> None:
    wanted, found = locked(image.file.name), installed(image)
    # venv brings setuptools where no lock asks for one.
    found = {name: version for name, version in found.items() if name in wanted or name != "setuptools"}
    assert found == wanted
    assert image.run(PYTHON, "-m", "pip", "check").strip() == "No broken requirements found."


def test_every_module_imports(image: Image, report_counts: Callable[[str, int], None]) -> None:
    modules = sorted(
        str(path.relative_to(image.app)).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in image.app.rglob("*.py")
        if path.name != "__main__.py"
    )
    answer = image.run(PYTHON, "/programs/imports.py", *modules, binds={PROGRAMS: "/programs"})
    assert json.loads(answer) == {}
    report_counts(f"{image.file.name}_modules", len(modules))


def test_no_process_compiles_the_application_again(image: Image) -> None:
    modules = set(image.app.rglob("*.py"))
    assert {path.parent.parent / f"{path.name.partition('.')[0]}.py" for path in image.app.rglob("*.pyc")} == modules
    told = image.run("/bin/sh", "-c", f"{PYTHON} -v -c 'import services.common.request.errors' 2>&1")
    assert "import 'services.common.request.errors'" in told
    assert "code object from /app" not in told, "which tells of a file that was compiled anew"


def test_the_gateway_has_neither_torch_nor_ray(gateway: Image) -> None:
    assert not {"torch", "triton", "ray", "numpy", "cupy-cuda13x"} & installed(gateway).keys()
    assert not (gateway.app / "services/target").exists()
    assert not (gateway.root / "usr/bin/gcc").exists()


def test_the_worker_computes_on_cuda_13(worker: Image) -> None:
    version, cuda = image_says(worker, "import torch; print(torch.__version__, torch.version.cuda)").split()
    assert version.partition("+")[2] != "cpu"
    assert cuda.startswith("13.")


def image_says(image: Image, program: str) -> str:
    return image.run(PYTHON, "-c", program)


def test_triton_needs_the_compiler_of_the_image(worker: Image) -> None:
    with pytest.raises(AssertionError, match="Failed to find C compiler"):
        worker.run(PYTHON, "/programs/launcher.py", binds={PROGRAMS: "/programs"}, path="/opt/venv/bin")


def test_triton_compiles_its_launcher_and_loads_it(worker: Image) -> None:
    """The driver is a library with every function that the launcher wants of it; none of them is called."""
    answer = worker.run(PYTHON, "/programs/launcher.py", binds={PROGRAMS: "/programs"})
    found = json.loads(answer.splitlines()[-1])
    assert found["wanted"] >= 10
    assert "load_binary" in found["functions"]


def test_the_root_is_read_only_and_the_user_nobody_special(image: Image) -> None:
    assert image.file.user == 10001
    assert image_says(image, "import os; print(os.getuid(), os.getgid(), os.getgroups())") == "10001 10001 []\n"
    states = image_says(
        image, "import os; print(*(os.statvfs(p).f_flag & os.ST_RDONLY for p in ('/', '/app', '/tmp')))"
    )
    assert states == "1 1 0\n"


def test_an_image_is_small_enough(image: Image, report_counts: Callable[[str, int], None]) -> None:
    assert image.bytes < MOST_BYTES
    report_counts(f"{image.file.name}_megabytes", image.bytes // 1_000_000)


def health_command(service: str, address: str) -> list[str]:
    """What the compose file asks a service, of another address."""
    compose = yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text())
    first, *words = compose["services"][service]["healthcheck"]["test"]
    assert first == "CMD"
    return [word.replace("127.0.0.1:50052", address) for word in words]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    pair = tmp_path / "worker", tmp_path / "gateway"
    for folder in pair:
        folder.mkdir()
    return pair


def wait(what: str, holds: Callable[[], bool]) -> None:
    """Waits for what comes by itself, such as an attachment after a pair is ready."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def healthy(image: Image, address: str) -> bool:
    try:
        image.run(*health_command(image.file.name, address))
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("user", [None, 1000650000], ids=["own user", "a user that the cluster chose"])
def test_both_images_serve(gateway: Image, worker: Image, folders: tuple[Path, Path], user: int | None) -> None:
    flags = ["--model=/models/target", "--drafter=/models/drafter", "--placement=cpu", "--adaptive=false"]
    with serving(
        worker, [*flags, "--host=127.0.0.1", "--insecure=true", "--run-dir=/tmp/r"], folders[0], MODELS, user
    ) as fleet:
        edge = ["--tokenizer=/models/target", "--wait-target-s=120", f"--watch={fleet['grpc']}"]
        with serving(gateway, edge, folders[1], MODELS, user) as bound, Client(bound["grpc"]) as client:
            # A pair takes requests before its drafter is attached, and both are told of a little later than they are.
            wait("no drafter is attached", lambda: any(pair.speculating for pair in client.status().each))
            result = client.generate("def add(a, b):\n", Options(max_tokens=16, ignore_eos=True))
            for image, address in ((worker, fleet["health"]), (gateway, bound["health"])):
                wait(f"{image.file.name} is not healthy", partial(healthy, image, address))
    assert len(result.tokens) == 16
    assert result.accepted > 0


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_debian_s_packages_come_from_one_list(name: str) -> None:
    file = Dockerfile(name)
    (step,) = [arguments for step, arguments in file.instructions if step == "RUN" and "packages.sh" in arguments]
    assert step == f'sh /etc/paceline/packages.sh /etc/paceline/{name}.packages "${{SNAPSHOT}}"'
    assert ("COPY", f"deploy/docker/packages.sh deploy/docker/{name}.packages /etc/paceline/") in file.instructions
    assert all(re.fullmatch(r"[a-z0-9-]+=[^=]+", package) for package in file.packages), "each has a version"
    assert re.fullmatch(r"\d{8}T\d{6}Z", file.snapshot)
    base = next(arguments for step, arguments in file.instructions if step == "ARG")
    assert re.fullmatch(r"BASE=debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", base)
    assert {arguments.split()[0] for step, arguments in file.instructions if step == "FROM"} == {"${BASE}"}
