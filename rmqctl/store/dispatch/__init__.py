"""The rules that say which queue units and index keys a message gets."""
