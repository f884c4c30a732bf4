"""Asks with DSPy: predictions by its default adapter and by that of JSON; prints what it got as JSON."""

import json
import sys
from typing import Any

import dspy


def ask(lm: Any) -> dict[str, Any]:
    """Everything but errors."""
    found: dict[str, Any] = {"chat": lm("hello")[0]}
    for name, adapter in (("fields", dspy.ChatAdapter()), ("json", dspy.JSONAdapter())):
        with dspy.context(lm=lm, adapter=adapter):
            found[name] = dspy.Predict("question -> town")(question="Where?").town
    with dspy.context(lm=lm):
        found["default"] = dspy.Predict("question -> town")(question="Where?").town
    return found


def errors(base: str, key: str) -> dict[str, Any]:
    """DSPy passes on the exceptions of LiteLLM."""
    try:
        dspy.LM("openai/other", api_base=base, api_key=key, cache=False, num_retries=0)("hello")
    except Exception as error:
        return {"model": [type(error).__name__, getattr(error, "status_code", None)]}
    return {}


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    talker = dspy.LM(f"openai/{served}", api_base=base, api_key=key, cache=False)
    print(json.dumps(ask(talker) | {"errors": errors(base, key)}))
