"""Other engines for state in Python, and what draws; each installed apart, for pins do not agree."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {
    "bytewax": ["bytewax==0.21.1", "pyarrow"],
    "pyflink": ["apache-flink==2.3.0"],  # brings its pyarrow, and its RocksDB
    "plot": ["matplotlib==3.11.2"],
}


def peer_command(name: str, folder: Path) -> list[str]:
    """The command of its contender; the first call makes its environment in `folder`."""
    return [python_of(name, folder), str(HERE / f"peer_{name}.py")]


def plot_command(folder: Path) -> list[str]:
    """The command that draws what `folder` has of results."""
    return [python_of("plot", folder), str(HERE / "plot.py"), str(folder)]


def python_of(name: str, folder: Path) -> str:
    environment = folder / f"venv-{name}"
    python = str(environment / "bin" / "python")
    done = environment / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES[name]], check=True)
        done.touch()
    return python
