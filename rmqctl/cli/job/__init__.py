"""`rmqctl job`: a module a question."""
