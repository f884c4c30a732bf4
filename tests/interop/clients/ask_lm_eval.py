"""Evaluates with lm-eval's local-completions and local-chat-completions on tasks of its own; prints scores as JSON."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"  # the data stand in files

import lm_eval
from lm_eval.tasks import TaskManager

CHOICE = """\
task: rome_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
TEXT = """\
task: rome_text
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{said}}"
generation_kwargs: {until: ["###"], max_gen_toks: 16}
metric_list: [{metric: exact_match}]
"""
QUESTIONS = [
    {
        "question": f"def f{number}():",
        "choices": [" return 42", " pass", " yield"],
        "answer": 0,
        "said": "Hello from Köln, you.",
    }
    for number in range(4)
]


def score(kind: str, task: str, folder: Path, **given: Any) -> float:
    """What a task's metric says."""
    found = lm_eval.simple_evaluate(
        model=kind, model_args=given, tasks=[task], task_manager=TaskManager(include_path=str(folder)),
        apply_chat_template=kind.endswith("chat-completions"), bootstrap_iters=0,
    )  # fmt: skip
    ((_, value),) = [one for one in found["results"][task].items() if one[0].split(",")[0] in ("acc", "exact_match")]
    return float(value)


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    os.environ["OPENAI_API_KEY"] = key
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["HF_HOME"] = made
        data = folder / "data.jsonl"
        data.write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS))
        for name, text in (("choice", CHOICE), ("text", TEXT)):
            (folder / f"{name}.yaml").write_text(text.replace("DATA", str(data)))
        completions = {"model": served, "base_url": f"{base}/completions", "auth_token": key}
        chats = {"model": served, "base_url": f"{base}/chat/completions"}
        scores = {
            "choice": score("local-completions", "rome_choice", folder, **completions),
            "chat": score("local-chat-completions", "rome_text", folder, **chats),
        }
    print(json.dumps(scores))
