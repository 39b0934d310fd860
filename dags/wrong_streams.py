"""This file has no Dag. Its import fails for a stream whose file is wrong, so that Airflow shows why.

The Dags of all other streams go on.
"""

from include.registry import all_streams

all_streams()
