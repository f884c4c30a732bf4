"""Decides what each round does, over integers alone: who joins, which chunks run, how wide drafts are."""
