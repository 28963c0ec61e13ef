"""Spark jobs, which answer questions about many stores or huge stores.

If no job runs, rmqctl imports only `scan.split_size` from this package.
"""
