"""What a broker's start does to a store: rules and simulation."""
