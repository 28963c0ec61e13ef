"""Expired files."""
