"""Planning and executing repairs of a store."""
