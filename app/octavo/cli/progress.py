"""Draws the steps of a pull on stderr: a bar in a terminal, a line for each step elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from octavo.models.progress import Step


class DrawnProgress:
    """A callback for pull; draws nothing before the first step."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._label = ""
        self._task: TaskID | None = None
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )

    @property
    def is_used(self) -> bool:
        """Whether there was anything to do."""
        return bool(self._label)

    def __call__(self, step: Step) -> None:
        """Show where it is now."""
        if step.label != self._label:
            self._begin(step)
        if self._task is not None:
            self._bar.update(self._task, completed=step.done_bytes, total=step.total_bytes, amount=_amount(step))

    def close(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._bar.stop()

    def _begin(self, step: Step) -> None:
        self._label = step.label
        if not self._console.is_terminal:
            self._console.print(step.label, markup=False, highlight=False)
            return
        self._bar.start()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(step.label, total=step.total_bytes, amount="")


@contextmanager
def drawn_progress() -> Iterator[DrawnProgress]:
    """A progress for one pull, taken off the screen at its end, whatever that is."""
    progress = DrawnProgress()
    try:
        yield progress
    finally:
        progress.close()


def _amount(step: Step) -> str:
    if step.total_bytes is None:
        return ""
    return f"{step.done_bytes / 1e6:.0f} of {step.total_bytes / 1e6:.0f} MB"
