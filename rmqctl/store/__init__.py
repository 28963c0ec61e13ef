"""The message store, read from files.

A store has the commit log, the consume queues, the index, the checkpoint and the configuration.
"""
