"""The values that all folders of the target share: requests, plans, rounds, commands and messages.

`Plan` defines slot, epoch, row, width, bucket and anchor. `I1` to `I10` are the invariants of docs/architecture.md.
"""
