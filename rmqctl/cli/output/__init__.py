"""How rmqctl prints documents, tables and errors."""
