"""A broker's settings and configuration files, and the layout of its store."""
