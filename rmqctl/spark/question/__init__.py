"""The questions that Spark jobs answer, and the code that these jobs share."""
