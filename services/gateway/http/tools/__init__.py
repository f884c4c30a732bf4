"""Calls of tools in the text of models, in the forms that their chat templates describe."""
