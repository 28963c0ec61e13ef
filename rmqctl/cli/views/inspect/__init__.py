"""The output of the verbs that only read a store."""
