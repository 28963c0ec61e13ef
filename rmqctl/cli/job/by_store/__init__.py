"""Jobs that examine each store as a whole, in one task of Spark."""
