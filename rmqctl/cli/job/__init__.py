"""`rmqctl job`: one module for each job."""
