"""The values that all rooms of the target share: requests, plans, rounds, commands and messages.

It imports no other room.
"""
