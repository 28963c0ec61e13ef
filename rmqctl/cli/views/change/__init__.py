"""The plans and results that the verbs that change a store show."""
