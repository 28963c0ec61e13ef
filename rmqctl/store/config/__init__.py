"""What a broker was told, and how its store is laid out."""
