"""Takes what fits into a time: python -m examples.python.deadline [ADDRESS] [SECONDS].

`timeout_s` ends the answer in good order with the text so far and `finish` deadline. `deadline_s`, the call's own
deadline, is the last resort: it fails with DEADLINE_EXCEEDED, so let it be the longer of the two.
"""

import sys

from examples.python.gateway import ADDRESS, connected
from paceline import RefusedError


def main() -> int:
    """Generates for at most SECONDS."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    with connected(address) as client:
        try:
            answer = client.generate(
                "class Node:", max_tokens=1000, ignore_eos=True, timeout_s=seconds, deadline_s=seconds + 5
            )
            print(f"{answer.finish} after {len(answer.tokens)} tokens")
        except RefusedError as error:
            if error.code != "DEADLINE_EXCEEDED":
                raise
            print("no token came in time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
