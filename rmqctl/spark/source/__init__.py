"""Spark data sources, which show stores as tables."""
