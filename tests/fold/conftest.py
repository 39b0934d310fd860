"""`pytest tests/fold --hypothesis-profile=long` looks for what the usual number does not find."""

from hypothesis import settings

settings.register_profile("long", settings.get_profile("tests"), max_examples=2_000)
