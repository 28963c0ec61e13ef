"""The verbs that change a store. Each verb first shows a plan."""
