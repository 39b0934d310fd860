"""When an engine starts a service again that has ended by itself."""

FIRST_DELAY = 0.1
LONGEST_DELAY = 60.0
# A service that has run for so long has started well: the next delay is the first one again.
STARTED_WELL = 10.0


def restart_delay(
    policy: str, exit_code: int, restarts: int, last_delay: float, ran_seconds: float
) -> float | None:
    """Seconds to wait before a start; None when it stays ended.

    `policy` as in `restart:`; `restarts` and `last_delay` are those since it was started by hand.
    """
    name, _, most = policy.partition(":")
    if name == "no" or (name == "on-failure" and exit_code == 0):
        return None
    if most and restarts >= int(most):
        return None
    if ran_seconds >= STARTED_WELL or not last_delay:
        return FIRST_DELAY
    return min(2 * last_delay, LONGEST_DELAY)
