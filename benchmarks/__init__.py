"""Side-by-side measurements; each module prints its bars."""
