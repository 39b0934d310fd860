"""Another Spark beside the project: a copy of its files, with a .venv and .jars of its own.

The .venv has only pyspark and delta-spark; all other packages are the project's, found through a .pth file.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from include.settings import PROJECT
from include.setup.jars import checksum_of, resolve, wanted_jars
from include.spark.java_classes import is_of_our_classes
from include.spark.versions import Versions, installed

FOLDER = PROJECT / ".bench" / "upgrades"
COPIED = (
    "dags",
    "docs",
    "include",
    "spark_jobs",
    "tests",
    "pyproject.toml",
    "README.md",
    "stateful",
)
OF_ARTIFACT = re.compile(r"(.+?)-\d[\w.]*\.jar")


def prepare(spark: str, delta: str) -> Path:
    """The folder of a project with these; what is there from before is used again."""
    folder = FOLDER / f"{spark}-{delta}"
    folder.mkdir(parents=True, exist_ok=True)
    copy_project(folder)
    if _versions(folder).spark != spark:
        make_venv(folder / ".venv", [f"pyspark=={spark}", f"delta-spark=={delta}"])
    if _versions(folder).delta != delta:
        fetch(folder, f"io.delta:delta-spark_{_series(spark)}_2.13:{delta}")
    record_checksums(folder)
    compile_classes(folder)
    return folder


def copy_project(folder: Path) -> None:
    """The files as they are now."""
    for name in COPIED:
        source, target = PROJECT / name, folder / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)


def make_venv(venv: Path, packages: list[str]) -> None:
    """With these packages, alone: pip would not have a Delta beside a Spark that it does not know."""
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (library,) = venv.glob("lib/python*/site-packages")
    (library / "of_the_project.pth").write_text(sysconfig.get_path("purelib"))
    pip(venv, "install", "--no-deps", "--ignore-installed", "--quiet", *packages, is_checked=True)


def pip(venv: Path, *words: str, is_checked: bool = False) -> str:
    """What pip says of this .venv, in which it is not."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]
    ran = subprocess.run(
        [*command, venv / "bin" / "python", *words], capture_output=True, text=True, check=False
    )
    if is_checked and ran.returncode:
        sys.exit(f"error: pip {' '.join(words)}: {ran.stderr.strip()}")
    return ran.stdout


def fetch(folder: Path, package: str) -> None:
    """The jars of a package that are like ours."""
    jars = folder / ".jars"
    shutil.rmtree(jars, ignore_errors=True)
    jars.mkdir()
    resolve(package, folder / ".venv" / "bin" / "python", jars / "ivy", jars / "fetch.log")
    for jar in like_ours(list((jars / "ivy" / "jars").iterdir())):
        jar.replace(jars / jar.name)
    shutil.rmtree(jars / "ivy")


def record_checksums(folder: Path) -> None:
    """Those of the jars in a copy are the right ones there: so it is not set up anew."""
    fetched = (jar for jar in (folder / ".jars").glob("*.jar") if not is_of_our_classes(jar))
    lines = [f"{checksum_of(jar)}  {jar.name}\n" for jar in sorted(fetched)]
    (folder / "include" / "jars.sha256").write_text("".join(lines))


def compile_classes(folder: Path) -> None:
    """Our classes in Java, beside this Spark and Delta: by the code of the copy, in its folder."""
    python = folder / ".venv" / "bin" / "python"
    words = "import sys, pathlib; from include.setup.java import compile_classes as compiled"
    program = f"{words}; compiled(pathlib.Path(sys.argv[1]))"
    subprocess.run([python, "-c", program, python], cwd=folder, check=True)


def like_ours(jars: list[Path]) -> list[Path]:
    """Those of the same artifacts as ours, of any version: Spark has the rest itself."""
    ours = {_artifact(name) for name in wanted_jars()}
    return [jar for jar in jars if _artifact(jar.name) in ours]


def _artifact(jar: str) -> str:
    """`io.delta_delta-spark` of `io.delta_delta-spark_4.2_2.13-4.4.0.jar`."""
    found = OF_ARTIFACT.fullmatch(jar)
    return re.sub(r"(_\d[\d.]*)+$", "", found[1]) if found else jar


def _versions(folder: Path) -> Versions:
    home = next(folder.glob(".venv/lib/python*/site-packages/pyspark"), folder)
    return installed(home, folder / ".jars")


def _series(release: str) -> str:
    return ".".join(release.split(".")[:2])
