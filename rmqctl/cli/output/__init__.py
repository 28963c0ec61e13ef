"""Printing of documents, tables and errors."""
