"""The same questions on Spark: to many stores, or huge ones.

Nothing here but `scan.split_size` is imported unless a job runs.
"""
