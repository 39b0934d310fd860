"""What `make demo-internals` runs and shows: see docs/internals.md."""
