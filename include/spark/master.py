"""Where Spark jobs run: the master, as SPARK_MASTER or a connection of Airflow names it.

Checked before a JVM starts: Spark itself says what is wrong with a master only in a stack trace,
and waits a minute for one that is not there.
"""

import re
import socket

from include.settings import SettingsError

SETTING = "SPARK_MASTER"
TIMEOUT_S = 5.0  # a master on the network answers in milliseconds, or not at all

YARN = "yarn"
HOST_AND_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d+"
LOCAL = re.compile(r"local(\[([1-9]\d*|\*)(,\s*[1-9]\d*)?\])?", re.ASCII)
STANDALONE = re.compile(rf"spark://{HOST_AND_PORT}(,{HOST_AND_PORT})*", re.ASCII)
KUBERNETES = re.compile(r"k8s://(https?://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?(/\S*)?", re.ASCII)
ALLOWED = "local[*], local[<threads>], spark://<host>:<port>, yarn or k8s://https://<host>:<port>"


class MasterUnreachableError(SettingsError):
    """Nothing answers at the master's address: it may yet start, or the address is wrong."""


def checked_master(master: str, setting: str = SETTING) -> str:
    """`master`, if it is one; SettingsError, naming the `setting` it came from, if not."""
    if is_local(master) or master == YARN or KUBERNETES.fullmatch(master):
        return master
    if STANDALONE.fullmatch(master) and all(0 < port < 65536 for _, port in _addresses(master)):
        return master
    raise SettingsError(f"{setting} is {master!r}: allowed are {ALLOWED}", subject=setting)


def is_local(master: str) -> bool:
    """Whether jobs run on this machine, all in the one JVM of the driver."""
    return LOCAL.fullmatch(master) is not None


def check_reachable(master: str, setting: str = SETTING) -> None:
    """MasterUnreachableError when `master` is `spark://` and none of its hosts takes a connection.

    One is enough: of several, all but one are standing by. The clients of YARN and Kubernetes
    find their masters in their own configuration, and say themselves what they miss.
    """
    if not STANDALONE.fullmatch(master):
        return
    errors = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), timeout=TIMEOUT_S).close()
        except OSError as error:
            errors.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise MasterUnreachableError(
        f"no Spark master answers at {master} ({'; '.join(errors)}): "
        f"start the cluster, or correct {setting}",
        code="unreachable_master",
        subject=setting,
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of a `spark://` master, an IPv6 host without its brackets."""
    found = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in found]
