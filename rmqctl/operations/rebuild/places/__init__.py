"""Disordered queues, and the rule that places their messages."""
