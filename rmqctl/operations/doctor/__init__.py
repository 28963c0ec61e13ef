"""The examination of `rmqctl doctor`.

The examination asks the planners of other packages for their plans, and executes no plan.
"""
