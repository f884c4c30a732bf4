"""A stack with a key and a certificate: who is let in, and what others see of the key."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from deploy.stack import Stack, StackSettings
from paceline import Client, RefusedError, Tls
from tests.unit.common.serving.certificates import Authority

KEY = "sesame-of-the-test"


def test_only_who_has_the_key_is_let_in_and_nobody_sees_it(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "server", "gateway")
    flags = ["--http", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key]
    with Stack(StackSettings(api_keys=(KEY,), gateway_flags=flags, ready_s=400.0)) as stack:
        tenants = stack.run_dir / "tenants.toml"
        assert tenants.stat().st_mode & 0o777 == 0o600 and KEY not in tenants.read_text()
        assert not [line for line in command_lines() if KEY in line]
        tls = Tls(ca)
        with Client(stack.gateway_address, key=KEY, tls=tls) as client:
            assert client.generate("def main():", max_tokens=4).tokens
        with Client(stack.gateway_address, tls=tls) as client, pytest.raises(RefusedError, match="UNAUTHENTICATED"):
            client.generate("def main():", max_tokens=4)
        request = urllib.request.Request(f"https://{stack.gateway_http[0]}/v1/models")
        context = ssl.create_default_context(cafile=ca)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=60.0, context=context)
        request.add_header("Authorization", f"Bearer {KEY}")
        with urllib.request.urlopen(request, timeout=60.0, context=context) as reply:
            assert json.load(reply)["data"]
    assert not tenants.exists()


def command_lines() -> list[str]:
    """Those of all live processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found
