"""What a benchmark prints: one result a line in tables, or as JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

Figures = Mapping[str, float | int | str]
MIN_WIDTH = 5
INDENT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured piece of work; what it has no number for is None.

    `more` are figures of its own. `parts`, all with the same figures, say what it is made of.
    """

    work: str
    model: str
    out_tps: float | None = None
    rps: float | None = None
    first_token_ms: float | None = None
    more: Figures = field(default_factory=dict)
    parts: Sequence[Figures] = ()

    def to_json(self) -> dict[str, object]:
        fields = asdict(self)
        more: dict[str, object] = fields.pop("more")
        if not self.parts:
            del fields["parts"]
        return fields | more

    @property
    def figures(self) -> Figures:
        """All that it has numbers for, by the names that people read."""
        usual = {"out tok/s": self.out_tps, "req/s": self.rps, "first token ms": self.first_token_ms}
        return {name: value for name, value in usual.items() if value is not None} | dict(self.more)


def to_lines(results: Iterable[Result]) -> Iterator[str]:
    """Tables of results as they come: names of figures above the first of those that have the same."""
    names: list[str] = []
    for number, result in enumerate(results):
        figures = result.figures
        if list(figures) != names:
            yield from [""] * (number > 0)
            yield f"{'work':<10} {'model':<14} {_names(figures)}".rstrip()
        yield f"{result.work:<10} {result.model:<14} {_values(figures)}".rstrip()
        yield from _parts(result)
        names = [] if result.parts else list(figures)


def _parts(result: Result) -> Iterator[str]:
    if result.parts:
        yield INDENT + _names(result.parts[0])
    for figures in result.parts:
        yield INDENT + _values(figures)


def _names(figures: Figures) -> str:
    return "  ".join(_cell(name, value, name) for name, value in _in_order(figures))


def _values(figures: Figures) -> str:
    return "  ".join(_cell(name, value, _shown(value)) for name, value in _in_order(figures))


def _in_order(figures: Figures) -> list[tuple[str, float | int | str]]:
    """Texts behind the numbers: how wide they become is not known while results come."""
    return sorted(figures.items(), key=lambda figure: isinstance(figure[1], str))


def _cell(name: str, value: float | int | str, text: str) -> str:
    return text if isinstance(value, str) else text.rjust(max(len(name), MIN_WIDTH))


def _shown(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 999.5 else f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else value
