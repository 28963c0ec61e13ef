"""Safe access to files: without links in the store, and as the store's owner."""
