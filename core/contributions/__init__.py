"""The exact, private side: canonical keys, bounded contributions and the histogram. Nothing here has a writer."""
