"""Values of a request and of its refusal, for gateway and target; imports no torch."""
