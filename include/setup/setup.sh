#!/bin/sh
# Set-up, first step: a Python that is new enough; then include/setup/install.py.
# In sh, because only that can say that there is no Python.
set -eu
cd "$(dirname "$0")/../.."

found=${PYTHON:+PYTHON=$PYTHON does not start}
# .venv first: once it is there, no other Python is needed.
for python in ${PYTHON:-.venv/bin/python python3.13 python3.12 python3.11 python3}; do
    # Run, not only looked up: a pyenv shim is on PATH for versions that do not start.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $version in
        3.1[1-9] | 3.[2-9][0-9]) exec "$python" -m include.setup.install "$@" ;;
    esac
    found="$python is $version"
done

echo "error: Python 3.11 or newer is needed, ${found:-none found on PATH}: install it" \
    "(Debian: apt-get install python3 python3-venv) or name one with PYTHON=" >&2
exit 2
