"""Any sequence of operations: the table is right, or its record says where not.

Jobs run by their own code over real Delta tables, without a JVM, and may be killed between any
two writes. `make simulate SEEDS=n` runs many more of it.
"""

from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.simulator.simulate import Simulation

TestOperations = Simulation.TestCase
TestOperations.settings = settings(
    examples(10), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
