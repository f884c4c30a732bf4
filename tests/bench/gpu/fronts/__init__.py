"""The race through HTTP: one client, the same requests to paceline's gateway and to vLLM's server."""
