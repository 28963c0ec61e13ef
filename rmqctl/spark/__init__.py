"""Spark jobs, which answer questions about many stores or huge stores.

A command that runs no Spark job imports only `scan.split` from this package.
"""
