"""What every service does as a server: listeners, TLS, life cycle, settings, logs, traces; imports no torch."""
