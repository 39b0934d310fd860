"""What is raised for a setting; apart, as settings are said in more than one file."""

from include.lake.errors import StatefulError


class SettingsError(StatefulError, ValueError):
    """A setting is missing, unknown or out of range; `subject` names it."""

    code = "wrong_setting"
