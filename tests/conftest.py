"""Loads the plugin that every suite of the project uses."""

pytest_plugins = ("tests.support.report",)
