"""The values that all rooms of the target share: requests, plans, rounds, commands and messages. Imports no other room."""
