"""Access to files: paths without links, and the owner of a store."""
