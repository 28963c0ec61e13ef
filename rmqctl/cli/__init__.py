"""The command line of rmqctl.

Each verb has one file. No other package prints or reads environment variables.
"""
