"""What a benchmark prints: one result a line as text, or as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured piece of work; what it has no number for is None. `more` are figures of its own."""

    work: str
    model: str
    out_tps: float | None = None
    rps: float | None = None
    first_token_ms: float | None = None
    more: Mapping[str, float | int | str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        fields = asdict(self)
        more: dict[str, object] = fields.pop("more")
        return fields | more

    def to_text(self) -> str:
        """One line, so that a table can be pasted from several."""
        figures = {"out tok/s": self.out_tps, "req/s": self.rps, "first token ms": self.first_token_ms} | dict(
            self.more
        )
        shown = "  ".join(f"{name} {_number(value)}" for name, value in figures.items() if value is not None)
        return f"{self.work:<10} {self.model:<14} {shown}"


def _number(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else value
