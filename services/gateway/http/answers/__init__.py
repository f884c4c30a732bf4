"""From a stream to the body or the events of an answer."""
