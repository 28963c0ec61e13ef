"""The read functions of DefaultMessageStore, for consumers and queries."""
