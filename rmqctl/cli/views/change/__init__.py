"""What the verbs that change a store show: plans and results."""
