"""What `paceline doctor` says of a command line, to hold beside what `paceline serve` says of it."""

import pytest

from deploy import doctor

FAILED = "FAIL "


def doctored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """Its exit code, and its lines of what keeps a start from serving; flags that are refused are its only line."""
    capsys.readouterr()
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr("sys.argv", ["doctor", *words])
    try:
        code: object = doctor.main()
    except SystemExit as end:
        code = end.code
    assert isinstance(code, int)
    out, err = capsys.readouterr()
    # Flags are refused in the name of the command.
    refused = [line.replace("make doctor: ", "make up: ", 1) for line in err.splitlines()]
    return code, refused + [line.split(maxsplit=2)[2] for line in out.splitlines() if line.startswith(FAILED)]
