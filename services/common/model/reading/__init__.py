"""From a configuration to a spec: what families share."""
