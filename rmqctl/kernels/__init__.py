"""Compiled functions that apply the rules of the format to many records at once."""
