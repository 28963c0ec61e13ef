"""What a broker of another version makes of a store."""
