"""The command line.

Each verb has one file. Only this package reads the environment and prints.
"""
