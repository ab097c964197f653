"""Random requests, forks, stops, pins, evictions and failing steps against a simple model of what must come out.

Every rule acts while a step is in flight, computed already or not: the runner asserts when the step is computed that
nothing it uses was touched.

OCTAVO_MACHINE_EXAMPLES sets how many runs each machine has.
"""

import logging
import os
from collections.abc import Iterator
from typing import Any
from unittest import TestCase

import pytest
from hypothesis import HealthCheck, settings
from tests.engine.engine_machine import DiskMachine, EngineMachine

MACHINE = settings(
    max_examples=int(os.environ.get("OCTAVO_MACHINE_EXAMPLES", "100")),
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    """Steps that are told to fail need not fill the log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def machine(size: int, is_caching: bool, kind: type[EngineMachine] = EngineMachine) -> type[TestCase]:
    made: Any = type("Machine", (kind,), {"block_size": size, "enable_prefix_caching": is_caching})
    made.TestCase.settings = MACHINE
    case: type[TestCase] = made.TestCase
    return case


TestBlocksOfOne = machine(1, True)
TestBlocksOfFour = machine(4, True)
TestBlocksOfSixteen = machine(16, True)
TestBlocksOfOneWithoutCaching = machine(1, False)
TestBlocksOfFourWithoutCaching = machine(4, False)
TestBlocksOfSixteenWithoutCaching = machine(16, False)
TestBlocksOfOneOnDisk = machine(1, True, DiskMachine)
TestBlocksOfFourOnDisk = machine(4, True, DiskMachine)
TestBlocksOfSixteenOnDisk = machine(16, True, DiskMachine)
TestBlocksOfFourOnDiskWithoutCaching = machine(4, False, DiskMachine)
