"""Compiled versions of the format's rules, for many records at once."""
