"""How many examples a test of Hypothesis tries: a share of its number, as the profile says.

`make test-full` tries all of them (`--hypothesis-profile=all`), `make test` one in ten, and
`make test-fast` (`few`) one in twenty.
"""

from hypothesis import settings

# What a test that does not name a number tries in `make test-full`.
ALL = 100


def examples(number: int) -> settings:
    """The decorator of a test that asks for more or fewer than the others."""
    share = settings().max_examples / ALL
    return settings(max_examples=max(1, round(number * share)))
