"""The store open for writing: DefaultMessageStore."""
