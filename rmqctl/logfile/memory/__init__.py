"""Fast writes to files: mapped memory, pooled buffers, files created in advance."""
