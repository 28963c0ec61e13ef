"""What two stores of the same broker group differ in."""
