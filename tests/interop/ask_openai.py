"""Asks through the real openai client and prints what it got as JSON; runs in the peers' virtual environment."""

import json
import sys

import openai


def main(base: str) -> None:
    """One chat and one completion, streamed and whole."""
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="none", timeout=60.0, max_retries=0)
    chat = [{"role": "user", "content": "hi"}]
    options = {"model": "fake", "max_tokens": 48, "seed": 5, "temperature": 0.0}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    found = {}
    for name, create, prompt in (
        ("chat", client.chat.completions.create, {"messages": chat}),
        ("completion", client.completions.create, {"prompt": "the fox"}),
    ):
        whole = create(**options, **prompt)
        text, usage, reason = "", None, None
        for chunk in create(**options, **prompt, **streamed):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += (choice.delta.content if name == "chat" else choice.text) or ""
                reason = choice.finish_reason or reason
        first = whole.choices[0]
        found[name] = {
            "whole": first.message.content if name == "chat" else first.text,
            "streamed": text,
            "reasons": [first.finish_reason, reason],
            "usage": [one.model_dump() if one else None for one in (whole.usage, usage)],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
