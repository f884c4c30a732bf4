"""From a body to a query."""
