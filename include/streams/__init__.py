"""Your streams, a file each, and their sources in `sources.py`. Nothing else names them."""
