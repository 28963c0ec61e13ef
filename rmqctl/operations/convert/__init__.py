"""A store written anew for another broker."""
