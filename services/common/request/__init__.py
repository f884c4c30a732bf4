"""What a request is and how it is refused, on both sides of a wire; imports no torch."""
