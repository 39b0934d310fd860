"""For tests of your state function: `run` calls a fold like a function, `check_fold` looks for bugs."""
