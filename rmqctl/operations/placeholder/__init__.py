"""Records in place of damaged ones."""
