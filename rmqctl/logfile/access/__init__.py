"""Who may reach which file: paths without links, and a store's owner."""
