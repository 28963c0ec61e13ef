"""The command line: thin. One file a verb; only here is the environment read and anything printed."""
