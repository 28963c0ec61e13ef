"""The verbs that change a store, each with a plan first."""
