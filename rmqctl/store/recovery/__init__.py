"""The effects of a broker's start on a store: rules and simulation."""
