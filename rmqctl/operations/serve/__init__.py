"""Sending an offline store to real slaves."""
