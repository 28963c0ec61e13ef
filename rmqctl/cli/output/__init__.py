"""Output: documents, tables, errors."""
