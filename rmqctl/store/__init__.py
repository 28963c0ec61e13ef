"""The message store, built from files.

It has the commit log, the consume queues, the index, the checkpoint and the configuration.
"""
