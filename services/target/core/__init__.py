"""The values that all folders of the target share: requests, plans, rounds, commands and messages.

`Plan` defines slot, epoch, row, width, bucket and anchor. This folder imports no other one of the target.
"""
