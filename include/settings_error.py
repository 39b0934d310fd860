"""What is raised for a setting; apart, as settings are said in more than one file."""


class SettingsError(ValueError):
    """A setting is missing, unknown or out of range; the message names it."""
