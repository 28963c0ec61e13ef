"""What the codes of findings mean, and what to do."""
