"""The examination of `rmqctl doctor`.

It asks the planners of other rooms what they would do, and executes nothing.
"""
