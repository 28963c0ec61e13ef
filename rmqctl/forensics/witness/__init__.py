"""Candidates for a damaged record, and the witnesses that confirm or refute them."""
