"""Loads the plugins that every suite of the project uses."""

pytest_plugins = ("tests.support.collecting", "tests.support.report", "tests.support.parallel", "tests.support.stuck")
