"""A second reader of sketches: from FORMAT.md and the public formats that it names, standard library alone."""
