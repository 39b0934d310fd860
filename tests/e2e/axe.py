"""axe-core, which finds what people with a screen reader or a keyboard cannot use: its npm package."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.debian import found_or_installed

PACKAGE = "axe-core@4.14.1"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"


def axe_script(folder: Path) -> str:
    """The script of the pinned version, fetched into `folder` by npm.

    Raises RuntimeError when there is none and this is not root, or when the package is another one.
    """
    npm = found_or_installed(lambda: shutil.which("npm"), "npm")
    if npm is None:
        raise RuntimeError("no npm here: install it (Debian: apt-get install npm)")
    pack = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    subprocess.run(pack, check=True, capture_output=True, cwd=folder)
    (file,) = folder.glob("axe-core-*.tgz")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != SHA256:
        raise RuntimeError(f"{PACKAGE} is {found}, not the file that was pinned: {SHA256}")
    with tarfile.open(file) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def violations(page: Page, script: str) -> list[str]:
    """The violations that axe finds: each rule, and the first elements that break it."""
    page.evaluate(script)
    found: dict[str, Any] = page.evaluate("() => axe.run()")
    return [
        f"{each['id']}: {[node['html'] for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]
