"""Stand-ins for the programs that a release's steps call: by the name under which this file is called.

Each checks what it is given as its original would, makes the files that later steps want, and notes its call.
"""

import json
import os
import sys
import tomllib
import zipfile
from pathlib import Path

import helm_python
import yaml


def pipx(words: list[str]) -> None:
    """`build` makes what a wheel says of itself; twine and CycloneDX look for what they are given."""
    match words:
        case ["run", program, "--outdir", folder] if program.startswith("build=="):
            build(Path(folder))
        case ["run", program, "check", "--strict", *files] if program.startswith("twine=="):
            assert files and all(Path(each).is_file() for each in files), files
        case ["run", "--spec", spec, "cyclonedx-py", "environment", folder, "--output-file", file]:
            assert spec.startswith("cyclonedx-bom==") and Path(folder, "bin/pip").is_file(), words
            Path(file).write_text("{}")
        case _:
            raise SystemExit(f"pipx is not called so: {words}")


def build(folder: Path) -> None:
    """Both packages by name; compressing all that they hold is a test of its own."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    name = f"{project['name']}-{project['version']}"
    folder.mkdir()
    (folder / f"{name}.tar.gz").touch()
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        extras = "".join(f"Provides-Extra: {each}\n" for each in project["optional-dependencies"])
        wheel.writestr(f"{name}.dist-info/METADATA", f"Name: {project['name']}\n{extras}")


def python(words: list[str]) -> None:
    """The real one, but an environment holds a pip of ours alone."""
    if words[:2] != ["-m", "venv"]:
        os.execv(sys.executable, ["python", *words])
    (_, _, folder) = words
    Path(folder, "bin").mkdir(parents=True)
    Path(folder, "bin/pip").symlink_to(Path(sys.argv[0]).with_name("pip"))


def pip(words: list[str]) -> None:
    """Takes a wheel with extras that it has."""
    match words:
        case ["install", "--quiet", what] if what.endswith("]"):
            wheel, _, extra = what.removesuffix("]").rpartition("[")
            with zipfile.ZipFile(wheel) as packed:
                (name,) = [each for each in packed.namelist() if each.endswith(".dist-info/METADATA")]
                assert f"Provides-Extra: {extra}\n" in packed.read(name).decode()
        case _:
            raise SystemExit(f"pip is not called so: {words}")


def helm(words: list[str]) -> None:
    """Packages and renders for real, by its SDK."""
    match words:
        case ["package", chart, "--destination", folder]:
            helm_python.package(chart, destination=folder)
        case ["template", name, archive, "--values", file, "--set", pair]:
            given = helm_python.parse_set_string_values(pair)
            with helm_python.Chart.load_archive(Path(archive).read_bytes()) as chart:
                values = yaml.safe_load(Path(file).read_text()) | given
                sys.stdout.write("\n---\n".join(chart.render(values, name=name, namespace="default").values()))
        case ["registry", "login", _, "--username", _, "--password-stdin"]:
            assert sys.stdin.read().strip(), "no password"
        case ["push", archive, address]:
            assert Path(archive).is_file() and address.startswith("oci://") and address == address.lower(), words
        case _:
            raise SystemExit(f"helm is not called so: {words}")


def gh(words: list[str]) -> None:
    """Looks for what it would publish."""
    match words:
        case [
            "release",
            "create",
            _,
            "--latest" | "--prerelease",
            "--verify-tag",
            "--title",
            _,
            "--notes-file",
            notes,
            *files,
        ]:
            assert os.environ["GH_TOKEN"] and Path(notes).read_text().strip(), "no notes"
            assert files and all(Path(each).is_file() for each in files), files
        case _:
            raise SystemExit(f"gh is not called so: {words}")


def docker(words: list[str]) -> None:
    """Gives a tag to an image that is there by its digest."""
    match words:
        case ["buildx", "imagetools", "create", "--tag", tag, image]:
            name, _, digest = image.partition("@")
            assert digest.startswith("sha256:") and tag.startswith(f"{name}:") and tag == tag.lower(), words
        case _:
            raise SystemExit(f"docker is not called so: {words}")


if __name__ == "__main__":
    called = Path(sys.argv[0]).name
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(json.dumps([called, *sys.argv[1:]]) + "\n")
    {"pipx": pipx, "python": python, "pip": pip, "helm": helm, "gh": gh, "docker": docker}[called](sys.argv[1:])
