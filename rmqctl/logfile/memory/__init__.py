"""Memory through which files are written.

This memory is allocated in advance, mapped, or taken from a pool.
"""
