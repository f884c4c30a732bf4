"""A query to its answer: the request, its stream over one target or several, and the record of the call."""
