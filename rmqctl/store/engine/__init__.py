"""A store that is open for writing: DefaultMessageStore."""
