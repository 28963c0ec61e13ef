"""Records that replace damaged ones."""
