"""The mechanisms: one file each, privacy map beside the release function."""
