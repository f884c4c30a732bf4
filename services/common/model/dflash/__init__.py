"""DFlash (github.com/z-lab/dflash): a drafter whose checkpoint is split by tensor name.

The target's half writes context K/V; the drafter's half proposes.
"""
