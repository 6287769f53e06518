"""The data doctor: what is in a data set and what is wrong with it."""
