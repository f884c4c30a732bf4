"""An image without Docker: Debian's packages by mmdebstrap, then the Dockerfile's steps inside that root.

The root is kept by the files that decide it, so that a run with the same locks installs nothing.
"""

import hashlib
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.image.dockerfile import ROOT, Dockerfile
from tests.image.wheels import fetch, prune

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "paceline/images"
SUITE = "bookworm"
CERTIFICATES = "/etc/ssl/certs"
# Folders that a container runtime makes as it mounts something there.
MOUNTED = ("app", "models", "programs")
INSTALL_S = 1500.0


@dataclass(frozen=True)
class Image:
    """A built root, the application beside it, and the Dockerfile that tells how it starts."""

    file: Dockerfile
    root: Path
    app: Path

    def command(
        self, *words: str, binds: dict[Path, str] | None = None, path: str = "", user: int | None = None
    ) -> list[str]:
        """A command inside the image, on a read-only root as its user; /tmp and home are writable and executable.

        Another user is one that the image does not know, in the group root, as OpenShift starts containers.
        """
        flags = ["bwrap", "--die-with-parent", "--unshare-pid", "--as-pid-1", "--clearenv", "--chdir", "/app"]
        flags += [
            "--ro-bind",
            str(self.root),
            "/",
            "--ro-bind",
            str(self.app),
            "/app",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        flags += ["--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/home/paceline"]
        flags += ["--perms", "1777", "--tmpfs", "/dev/shm"]
        for source, place in (binds or {}).items():
            flags += ["--ro-bind", str(source), place]
        variables = {**self.file.variables, "HOME": "/home/paceline"} | ({"PATH": path} if path else {})
        for name, value in variables.items():
            flags += ["--setenv", name, value]
        if user is None:
            return [*flags, *_as_user(self.file.user, self.file.user), *words]
        return [*flags, "--setenv", "USER", "paceline", *_as_user(user, 0), *words]

    def run(self, *words: str, binds: dict[Path, str] | None = None, path: str = "") -> str:
        """What a command inside the image prints.

        Raises:
            AssertionError: it failed; the message is what it wrote.
        """
        done = subprocess.run(
            self.command(*words, binds=binds, path=path), capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def bytes(self) -> int:
        """What root and application take on disk."""
        done = subprocess.run(["du", "--summarize", "--bytes", self.root, self.app], capture_output=True, check=True)
        return sum(int(line.split()[0]) for line in done.stdout.splitlines())


def _as_user(user: int, group: int) -> list[str]:
    """Root takes the image's user and gives up every capability; the command it stands before must be bwrap's."""
    drop = ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    return [
        *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
        *("/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", *drop, "--"),
    ]


def install(names: Sequence[str]) -> None:
    """Makes the roots of Dockerfiles that are not there, each on a processor of its own."""
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: _root(Dockerfile(name)), names))


def _root(file: Dockerfile) -> Path:
    name, root = file.name, CACHE / f"{file.name}-{_key(file)}"
    if not root.is_dir():
        part = root.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{name}-*"):
            shutil.rmtree(old)
        _install(file, part)
        for place in MOUNTED:
            (part / place).mkdir()
        part.rename(root)
    return root


def build(name: str, folder: Path) -> Image:
    """The image of a Dockerfile, its application copied into the folder."""
    file = Dockerfile(name)
    root = _root(file)
    folder.chmod(0o755)
    for source, place in file.application:
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for line in file.finishing:
        _step(root, "/app", line, None, folder)
    return Image(file, root, folder)


def _key(file: Dockerfile) -> str:
    """A digest of everything that decides the root."""
    digest = hashlib.sha256(repr((SUITE, file.packages, file.base)).encode())
    for step, arguments in file.base:
        for source in _sources(arguments) if step == "COPY" else ():
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _sources(arguments: str) -> list[Path]:
    return [] if arguments.startswith("--from") else [ROOT / source for source in arguments.split()[:-1]]


def _install(file: Dockerfile, root: Path) -> None:
    """Replays every stage in one root: a stage that only makes files for another needs none of its own."""
    command = [
        "unshare",
        "--mount",
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={','.join(file.packages)}",
    ]
    command += [
        "--aptopt=Acquire::Check-Valid-Until false",
        "--dpkgopt=force-unsafe-io",
        SUITE,
        str(root),
        *_mirrors(file.snapshot),
    ]
    lock, wheels = ROOT / f"requirements/{file.name}.lock.txt", CACHE / "wheels" / file.name
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(fetch, lock, wheels)
        done = subprocess.run(command, check=False, timeout=INSTALL_S)
    assert done.returncode == 0, (
        f"the packages of {file.name}.packages cannot be had: where the archive of {file.snapshot} is not reached, "
        "their versions must be those of this machine's mirror: see apt-cache policy"
    )
    prune(wheels, [lock])
    _replay(file, root, wheels if fetched.result() else None)


def _replay(file: Dockerfile, root: Path, wheels: Path | None) -> None:
    workdir = "/"
    for step, arguments in file.base:
        match step:
            case "FROM":
                workdir = "/"
            case "WORKDIR":
                workdir = arguments
                (root / workdir.lstrip("/")).mkdir(exist_ok=True)
            case "COPY":
                _copy(root, workdir, arguments)
            case "RUN":
                _step(root, workdir, arguments, wheels)


def _mirrors(snapshot: str) -> list[str]:
    """Sources of the moment that the Dockerfile names; none, which is the machine's own, where they are not reached."""
    archive = "http://snapshot.debian.org/archive"
    try:
        with urllib.request.urlopen(f"{archive}/debian/{snapshot}/dists/{SUITE}/Release", timeout=20):
            places = (f"debian/{snapshot} {SUITE}", f"debian/{snapshot} {SUITE}-updates")
            return [f"deb {archive}/{each} main" for each in (*places, f"debian-security/{snapshot} {SUITE}-security")]
    except OSError:
        return []


def _copy(root: Path, workdir: str, arguments: str) -> None:
    words = arguments.split()
    start = root if words[0].startswith("--from") else ROOT
    place = root / os.path.join(workdir, words[-1]).lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    for source in words[1:-1] if start == root else words[:-1]:
        shutil.copy(start / source.lstrip("/"), place)


def _step(root: Path, workdir: str, line: str, wheels: Path | None, app: Path | None = None) -> None:
    """A step of the Dockerfile inside the root, as root, with pip's configuration emptied but for wheels at hand.

    It may write the application, where that is there.
    The certificates of this machine stand for the image's, as a build behind a proxy of one's own has them.
    """
    command = ["bwrap", "--die-with-parent", "--clearenv", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
    command += ["--ro-bind", CERTIFICATES, CERTIFICATES, "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
    command += ["--ro-bind", "/etc/hosts", "/etc/hosts", "--chdir", workdir]
    if app is not None:
        command += ["--bind", str(app), "/app"]
    variables = {"PIP_CONFIG_FILE": "/dev/null", "PIP_QUIET": "1", "PIP_CERT": f"{CERTIFICATES}/ca-certificates.crt"}
    variables |= {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    if wheels is not None:
        command += ["--ro-bind", str(wheels), "/mnt"]
        variables |= {"PIP_FIND_LINKS": "/mnt", "PIP_NO_INDEX": "1"}
    for name, value in variables.items():
        command += ["--setenv", name, value]
    command += ["--cap-add", "ALL", "/bin/sh", "-ec", line]
    subprocess.run(command, check=True, timeout=INSTALL_S)
