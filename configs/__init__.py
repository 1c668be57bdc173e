"""Ready-made configs, one for each use; `hushgram example NAME --config` writes one out."""
