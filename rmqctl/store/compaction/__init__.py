"""The folder in which a broker of 5.1 and later keeps compacted topics."""
