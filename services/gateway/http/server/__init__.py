"""HTTP/1.1 itself: connections, bounds, hosts, and one exchange."""
