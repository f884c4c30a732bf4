"""Measures with the command guidellm on three prompts; prints what became of its requests as JSON."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GUIDELLM = Path(sys.executable).with_name("guidellm")
PROMPTS = ("hello", "good day", "a third")


def measured(folder: Path, base: str, key: str, model: str) -> dict[str, Any]:
    """The report of a synchronous run."""
    data, report = folder / "data.jsonl", folder / "report.json"
    data.write_text("".join(json.dumps({"prompt": one, "output_tokens_count": 4}) + "\n" for one in PROMPTS))
    backend = f"kind=openai_http,target={base.removesuffix('/v1')},model={model},api_key={key}"
    command = [str(GUIDELLM), "run", "--backend", backend, "--profile", "kind=synchronous"]
    command += ["--constraint", f"kind=max_requests,count={len(PROMPTS)}", "--data", f"kind=json_file,path={data}"]
    command += ["--output", f"kind=json,path={report}", "--disable-console"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder)}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        (run,) = measured(Path(made), *sys.argv[1:])["benchmarks"]
    requests = run["requests"]
    said = {one["output"] for one in requests["successful"]}
    print(json.dumps({"failed": len(requests["errored"]), "whole": len(requests["successful"]), "said": sorted(said)}))
