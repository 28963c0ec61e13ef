"""Memory through which files are written: allocated ahead, mapped, or from a pool."""
