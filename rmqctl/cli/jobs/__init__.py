"""`rmqctl job NAME`: a file a name, and what they share in `spark_options`."""
