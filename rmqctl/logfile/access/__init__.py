"""Safe access to files: by paths without links, and as the owner of a store."""
