"""Memory that files of the store are written through: allocated ahead, mapped, or borrowed from a pool."""
