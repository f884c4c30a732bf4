"""Decides what each round does, over integers alone: which requests are admitted, which chunks run, how wide it is."""
