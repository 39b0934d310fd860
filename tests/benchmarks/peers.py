"""Other engines for state in Python; each installed apart, for pins do not agree."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {
    "bytewax": ["bytewax==0.21.1", "pyarrow"],
    "pyflink": ["apache-flink==2.3.0"],  # brings its pyarrow, and its RocksDB
}


def peer_command(name: str, folder: Path) -> list[str]:
    """The command of its contender; the first call makes its environment in `folder`."""
    return [python_of(name, folder), str(HERE / f"peer_{name}.py")]


def python_of(name: str, folder: Path) -> str:
    environment = folder / f"venv-{name}"
    python = str(environment / "bin" / "python")
    done = environment / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES[name]], check=True)
        done.touch()
    return python
