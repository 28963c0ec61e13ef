"""The rules of dispatch: which queue units and index entries a message gets."""
