"""The chart, and the page that is made from its values."""
