"""The views, which show the plans and results of the verbs."""
