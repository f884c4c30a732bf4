"""The words that every room of the target speaks: requests, plans, rounds, commands, news. Imports no other room."""
