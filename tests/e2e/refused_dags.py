"""An auth manager for tests: Airflow's simple one, in which not everybody may read every Dag.

Named by `AIRFLOW__CORE__AUTH_MANAGER`, as one of a provider would be.
"""

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

HIDDEN = "stream_user_counts"


class RefusedDags(SimpleAuthManager):
    """`HIDDEN` is for admins alone."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **others: Any) -> bool:
        if details is not None and details.id == HIDDEN and user.role != "admin":
            return False
        return super().is_authorized_dag(user=user, details=details, **others)
