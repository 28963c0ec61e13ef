"""Bring damaged records back: from their own bytes, or from a replica."""
