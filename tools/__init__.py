"""Tools for those who work on hushgram; not part of the installed package."""
