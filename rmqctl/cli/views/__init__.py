"""The views: modules that show the plans and results of the verbs."""
