"""One page with pictures of a store, for a person who was not there."""
