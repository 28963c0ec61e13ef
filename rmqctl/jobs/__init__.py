"""The same questions on Spark: to many stores, or huge ones. Nothing here is imported unless a job runs."""
