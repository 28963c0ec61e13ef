"""The output of the verbs that change a store."""
