"""Write a new store with what was found of a log."""
