"""The examination of `rmqctl doctor`.

It asks the planners of other packages for their plans, and executes none.
"""
