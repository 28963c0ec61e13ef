"""Output: documents, tables, complaints."""
