"""The verbs that change a store; each of them first shows a plan."""
