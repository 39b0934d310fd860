"""Tests of state functions: `run` calls a fold like a function, `check_fold` looks for bugs."""
