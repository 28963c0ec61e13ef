"""The command line of rmqctl.

Each verb has one file. Only this package reads environment variables and prints.
"""
