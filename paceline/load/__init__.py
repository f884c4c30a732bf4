"""Measures a served model from outside: requests at several concurrencies, their times, a table and a picture."""
