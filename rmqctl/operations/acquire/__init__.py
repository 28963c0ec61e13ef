"""Copy a store as evidence, and check such a copy."""
