"""What `./stateful demo-internals` runs and shows: see docs/internals.md."""
