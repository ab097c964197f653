"""The step in flight: launched, and computed while the host makes text of the one before."""

import logging

from octavo_engine.batch import Batch, ModelRunner, PendingStep, StepOutput
from octavo_engine.checks import check_output
from octavo_engine.errors import DeviceMemoryError

log = logging.getLogger(__name__)


class Flight:
    """One launched batch. What launching or computing it raises is kept, and comes out of `land`."""

    def __init__(self, runner: ModelRunner, batch: Batch) -> None:
        self.batch = batch
        self._pending: PendingStep | None = None
        self._outcome: StepOutput | Exception | None = None
        try:
            self._pending = runner.launch(batch)
        except Exception as error:  # a border: one bad step must not take the other chats along
            self._fail(error)

    @property
    def is_over(self) -> bool:
        """Whether somebody waited for it to its end."""
        return self._outcome is not None

    def wait(self) -> None:
        """Block until the step is computed, or has failed."""
        if self._outcome is None:
            assert self._pending is not None
            try:
                output = self._pending.wait()
                check_output(self.batch, output)
                self._outcome = output
            except Exception as error:  # a border, see above
                self._fail(error)

    def land(self) -> StepOutput:
        """What the step gave. Raises what went wrong in it."""
        self.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, DeviceMemoryError):  # of which more is known where the step is taken in
            log.error("a step of %d rows failed", len(self.batch.sequences), exc_info=error)
        self._outcome = error
