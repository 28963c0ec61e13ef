"""The Spark session of a job, and the JVM in which Spark runs."""
