"""Spark jobs, which ask the same questions of many stores or huge stores.

Only `scan.split_size` is imported from this package unless a job runs.
"""
