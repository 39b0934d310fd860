"""promtool, of Debian's package prometheus: on PATH, or unpacked from it without an installation."""

import shutil
import subprocess
from pathlib import Path


def promtool(folder: Path) -> str:
    """The program; fetched into `folder` where there is none, which needs Debian's apt-get."""
    if found := shutil.which("promtool"):
        return found
    assert shutil.which("apt-get"), "no promtool: install Prometheus, or put its promtool on PATH"
    folder.mkdir(exist_ok=True)
    # Not installed: that would start a server.
    subprocess.run(["apt-get", "update", "-qq"], check=False)
    subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True)
    (package,) = folder.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "-x", package, folder], check=True)
    return str(folder / "usr" / "bin" / "promtool")
