"""The reading side of DefaultMessageStore: what consumers receive."""
