"""The output of documents, tables and errors."""
