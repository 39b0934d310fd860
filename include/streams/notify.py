"""Your notifiers: where alerts go, beside the log of the task `alert`.

Any notifier of Airflow: of a provider that is installed (Slack, webhook, mail, ...), or a class of
your own. Its templates have `alert`, with `title`, `text`, `html`, `severity`: docs/operate.md.
Only the tasks that send import this file, so a provider that is missing stops no stream.
"""

from typing import Any

NOTIFY: tuple[Any, ...] = ()
