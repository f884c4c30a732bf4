"""Dashboards as code: panels.py says what to show, build.py writes the JSON that is committed beside it."""
