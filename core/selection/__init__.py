"""Selection: the largest of a list of counts, privately."""
