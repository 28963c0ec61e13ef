"""Plans of repairs, and their execution."""
