#!/bin/sh
# Set-up, first step: a Python that is new enough; then include/setup/install.py.
# In sh, because only that can say that there is no Python.
set -eu
cd "$(dirname "$0")/../.."

advice='install it (Debian: apt-get install python3 python3-venv) or name one with PYTHON='

# Run, not only looked up: a pyenv shim is on PATH for versions that do not start.
version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    candidates=$PYTHON
else
    # .venv first: once it is there, no other Python is needed.
    candidates='.venv/bin/python python3.13 python3.12 python3.11 python3'
fi

found=
for candidate in $candidates; do
    if is_new_enough "$candidate"; then
        exec "$candidate" -m include.setup.install "$@"
    fi
    version=$(version_of "$candidate") && found="$candidate is $version"
done

if [ -n "$found" ]; then
    echo "error: Python 3.11 or newer is needed, $found: $advice" >&2
elif [ -n "${PYTHON:-}" ]; then
    echo "error: Python 3.11 or newer is needed, PYTHON=$PYTHON does not start: $advice" >&2
else
    echo "error: Python 3.11 or newer is needed, none found on PATH: $advice" >&2
fi
exit 2
