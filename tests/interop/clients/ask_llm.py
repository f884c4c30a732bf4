"""Asks with the command `llm`; prints what it got as JSON."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LLM = Path(sys.executable).with_name("llm")
MODELS = """\
- {model_id: chat, model_name: MODEL, api_base: BASE, api_key_name: paceline, supports_tools: true}
- {model_id: text, model_name: MODEL, api_base: BASE, api_key_name: paceline, completion: true}
- {model_id: other, model_name: other, api_base: BASE, api_key_name: paceline}
"""
WEATHER = """
def Weather(town: str) -> str:
    "The weather of a town."
    return "21 in " + town
"""


def llm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command."""
    return subprocess.run([LLM, *arguments], capture_output=True, text=True, check=False, timeout=60)


def ask() -> dict[str, Any]:
    """What the command prints, and its exit codes."""
    called = llm("-m", "chat", "hello", "--functions", WEATHER, "--tools-debug")
    used = json.loads(llm("logs", "--count", "1", "--json").stdout)[0]
    found = {
        "chat": llm("-m", "chat", "hello", "--no-stream").stdout.rstrip("\n"),
        "stream": llm("-m", "chat", "hello").stdout.rstrip("\n"),
        "completion": llm("-m", "text", "def f():", "--no-stream").stdout.rstrip("\n"),
        "completion_stream": llm("-m", "text", "def f():").stdout.rstrip("\n"),
        "call": called.stderr.strip().splitlines()[0],
        "result": used["response"],
    }
    wrong = {"key": llm("-m", "chat", "hello", "--key", "wrong"), "model": llm("-m", "other", "hello")}
    return found | {"errors": {name: [one.returncode, one.stderr.strip()] for name, one in wrong.items()}}


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LLM_USER_PATH"] = folder
        models = MODELS.replace("BASE", base).replace("MODEL", served)
        (Path(folder) / "extra-openai-models.yaml").write_text(models)
        llm("keys", "set", "paceline", "--value", key)
        print(json.dumps(ask()))
