"""Files of a store as they will be after a plan."""
