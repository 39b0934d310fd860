"""How producers write times and CSV, as a source says it."""

from dataclasses import dataclass
from zoneinfo import available_timezones

from include.settings_error import SettingsError

TIME_FORMATS = ("iso", "epoch_s", "epoch_ms", "epoch_us")


@dataclass(frozen=True, kw_only=True)
class Times:
    """How producers write times, where these do not say it themselves."""

    # iso: ISO-8601. epoch_s, epoch_ms, epoch_us: since 1970, UTC. Else a format of strptime.
    format: str = "iso"
    # Of times that have none, such as "Europe/Berlin". None: these are refused.
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.format not in TIME_FORMATS and "%" not in self.format:
            raise SettingsError(
                f"times: {self.format!r} is no format: allowed are {', '.join(TIME_FORMATS)}, or one "
                'of strptime, such as "%d/%m/%Y %H:%M:%S"',
                subject="format",
            )
        if "%Z" in self.format.replace("%%", ""):
            raise SettingsError(
                f"times: {self.format!r} reads the name of a zone (%Z), which each machine understands "
                "otherwise: have offsets written (%z), or leave it out and name `zone`",
                subject="format",
            )
        if self.zone is not None and self.zone not in available_timezones():
            raise SettingsError(
                f"times: {self.zone!r} is no time zone, such as Europe/Berlin", subject="zone"
            )


@dataclass(frozen=True, kw_only=True)
class Csv:
    """How producers write CSV."""

    delimiter: str = ","
    quote: str | None = '"'  # doubled within a quoted cell. None: no cell is quoted
    encoding: str = "utf-8"  # one of Python's names: "cp1252", "utf-16"
    # The columns of files that have no header line, in order.
    header: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        marks = [self.delimiter] if self.quote is None else [self.delimiter, self.quote]
        if any(len(mark) != 1 or mark in "\r\n\0" for mark in marks) or len({*marks}) < len(marks):
            raise SettingsError(
                f"csv: delimiter {self.delimiter!r} and quote {self.quote!r} must be two different "
                "characters, and no line's end",
                subject="delimiter",
            )
        if not _is_text_encoding(self.encoding):
            raise SettingsError(
                f"csv: {self.encoding!r} is no encoding, such as cp1252", subject="encoding"
            )
        if self.header is not None and not self.header:
            raise SettingsError(
                "csv: header must name the columns; None: the files' first line does",
                subject="header",
            )


def _is_text_encoding(name: str) -> bool:
    try:
        b"a".decode(name)
    except LookupError:
        return False
    except UnicodeError:  # of two bytes, such as UTF-16
        return True
    return True


ISO = Times()
USUAL_CSV = Csv()
