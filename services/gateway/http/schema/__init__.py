"""The bodies of OpenAI's API as they stand on the wire, and its errors."""
