"""Loads the plugins that every suite of the project uses."""

NAMES = ("collecting", "report", "parallel", "quick_script", "stuck")
pytest_plugins = tuple(f"tests.support.{name}" for name in NAMES)
