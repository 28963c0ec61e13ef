"""Memory through which files are written.

It is allocated ahead, mapped, or taken from a pool.
"""
