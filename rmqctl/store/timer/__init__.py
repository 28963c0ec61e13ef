"""The files in which a broker of 5.x keeps timer messages until they are due."""
