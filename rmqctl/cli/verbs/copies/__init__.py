"""The verbs that write another store or folder, or send to another host."""
