"""The draws follow the exact probabilities that the parameters ask for."""

import math

import pytest
import torch

from octavo_engine.errors import ParameterError
from octavo_engine.params import SamplingParams
from octavo_engine.runner.adjustments import TokenCounts, add_biases
from octavo_engine.runner.filters import RowParams, draw, keep_likely
from octavo_engine.runner.sampler import token_logprobs
from octavo_engine.runner.uniform import uniform
from octavo_engine.sequence import Sequence

NUM_DRAWS = 20_000
LOGITS = torch.tensor([2.0, 0.5, -1.0, 1.5, 0.0, 1.0, -0.5, -3.0])
CPU = torch.device("cpu")


def sequence(params: SamplingParams, *, prompt: list[int] | None = None, reply: list[int] | None = None) -> Sequence:
    made = Sequence("r", prompt or [0], params, seed=params.seed or 0, stop_ids=frozenset(params.stop_token_ids))
    made.token_ids += reply or []
    return made


def draw_many(logits: torch.Tensor, params: SamplingParams, count: int = NUM_DRAWS) -> torch.Tensor:
    """`count` draws of one seeded request, one a position."""
    rows = RowParams.of([sequence(params)] * count, CPU)
    return draw(logits.expand(count, -1), rows, torch.arange(count))


def exact(params: SamplingParams) -> list[float]:
    """The probabilities by the definitions, one id after the other."""
    weights = [math.exp(float(x) / params.temperature) for x in LOGITS]
    probs = [w / sum(weights) for w in weights]
    ranked = sorted(range(len(probs)), key=lambda i: -probs[i])
    kept = ranked[: params.top_k] if params.top_k else ranked
    mass = sum(probs[i] for i in kept)
    nucleus: list[int] = []
    for i in kept:
        if sum(probs[j] for j in nucleus) < params.top_p * mass:
            nucleus.append(i)
    nucleus = [i for i in nucleus if probs[i] >= params.min_p * max(probs)]
    total = sum(probs[i] for i in nucleus)
    return [probs[i] / total if i in nucleus else 0.0 for i in range(len(probs))]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_p=1.0, seed=1),
        SamplingParams(temperature=0.3, top_p=1.0, seed=2),
        SamplingParams(temperature=2.5, top_p=1.0, seed=3),
        SamplingParams(temperature=1.0, top_p=1.0, top_k=3, seed=4),
        SamplingParams(temperature=1.0, top_p=0.8, seed=5),
        SamplingParams(temperature=1.0, top_p=1.0, min_p=0.2, seed=6),
        SamplingParams(temperature=0.8, top_k=6, top_p=0.9, min_p=0.05, seed=7),
    ],
    ids=["plain", "cold", "hot", "top_k", "top_p", "min_p", "all"],
)
def test_draws_follow_the_exact_probabilities(params: SamplingParams) -> None:
    counts = torch.bincount(draw_many(LOGITS, params), minlength=len(LOGITS)).tolist()
    pairs = [(count, p * NUM_DRAWS) for count, p in zip(counts, exact(params), strict=True)]
    assert all(count == 0 for count, expected in pairs if expected == 0)
    chi_square = sum((count - expected) ** 2 / expected for count, expected in pairs if expected)
    degrees = sum(expected > 0 for _, expected in pairs) - 1
    assert (
        chi_square < degrees + 4.5 * math.sqrt(2 * degrees) + 6
    )  # about one in 100,000 by chance; the seeds are fixed


def test_a_wide_nucleus_is_found_beyond_the_candidates() -> None:
    flat = torch.zeros(1, 5000)
    flat[0, :2500] += torch.linspace(0.0, 1e-3, 2500)  # no ties at the edge
    rows = RowParams.of([sequence(SamplingParams(temperature=1.0, top_p=0.4))], CPU)
    kept = keep_likely(flat.softmax(-1), rows)
    assert int((kept > 0).sum()) == pytest.approx(2000, abs=2)


def test_a_draw_that_the_host_does_not_wait_for_gives_the_same_ids() -> None:
    filters = ((0.8, 0, 0.95, 0.0), (1.0, 0, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (2.0, 7, 0.5, 0.0), (1.0, 50, 1.0, 0.1))
    rows = [sequence(SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m)) for t, k, p, m in filters]
    logits = torch.randn(len(rows), 4000, generator=torch.Generator().manual_seed(0)) * 3
    for position in range(50):
        positions = torch.full((len(rows),), position)
        looking, static = RowParams.of(rows, CPU), RowParams.of(rows, CPU, is_static=True)
        assert draw(logits, static, positions).tolist() == draw(logits, looking, positions).tolist()


def test_temperature_zero_takes_the_largest_logit_also_beside_a_drawing_row() -> None:
    greedy, drawing = sequence(SamplingParams(temperature=0.0)), sequence(SamplingParams(temperature=9.0, seed=3))
    ids = draw(LOGITS.expand(2, -1), RowParams.of([greedy, drawing], CPU), torch.tensor([0, 0]))
    assert ids[0] == 0


def test_a_seeded_draw_does_not_depend_on_its_neighbours() -> None:
    mine = sequence(SamplingParams(temperature=1.0, top_p=1.0, seed=11))
    others = [sequence(SamplingParams(temperature=t, top_k=k, top_p=p)) for t, k, p in ((0.0, 0, 1.0), (2.0, 3, 0.5))]
    logits = torch.randn(1, 4000, generator=torch.Generator().manual_seed(0)) * 3
    for position in range(50):
        alone = draw(logits, RowParams.of([mine], CPU), torch.tensor([position]))
        together = draw(logits.expand(3, -1), RowParams.of([*others, mine], CPU), torch.tensor([0, 5, position]))
        assert alone[0] == together[2]


def test_an_id_of_probability_zero_is_never_drawn() -> None:
    logits = torch.full((1, 100), -torch.inf)
    logits[0, 40] = 0.0
    assert set(draw_many(logits[0], SamplingParams(temperature=1.0, top_p=1.0, seed=5), 2000).tolist()) == {40}


def test_uniform_numbers_are_even_and_in_range() -> None:
    numbers = uniform(torch.full((NUM_DRAWS,), 7), torch.arange(NUM_DRAWS))
    assert 0.0 <= float(numbers.min()) < 0.001
    assert 0.999 < float(numbers.max()) < 1.0
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.01)
    neighbours = uniform(torch.arange(NUM_DRAWS), torch.zeros(NUM_DRAWS, dtype=torch.int64))
    assert float(neighbours.mean()) == pytest.approx(0.5, abs=0.01)


def test_penalties_change_the_logits_by_the_definitions() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    counts, logits = TokenCounts(8, CPU), LOGITS.expand(2, -1).clone()
    counts.penalise(logits, [1], [sequence(params, prompt=[0, 2], reply=[3, 3])])
    assert torch.equal(logits[0], LOGITS)
    assert logits[1].tolist() == [1.0, 0.5, -2.0, 0.75 - 0.5 - 2 * 0.25, 0.0, 1.0, -0.5, -3.0]


def test_a_step_that_is_run_again_counts_an_id_once() -> None:
    params, counts = SamplingParams(frequency_penalty=1.0), TokenCounts(8, CPU)
    mine = sequence(params, prompt=[1])
    for reply in ([], [5]):
        mine.token_ids += reply
        for _ in range(2):
            logits = torch.zeros(1, 8)
            counts.penalise(logits, [0], [mine])
    assert logits[0, 5] == -1.0


def test_counts_follow_a_reply_and_rows_are_given_back() -> None:
    params, counts = SamplingParams(frequency_penalty=1.0), TokenCounts(8, CPU)
    for _ in range(20):  # more sequences than the table has rows at first
        mine = sequence(params, prompt=[1])
        for reply, expected in (([], 0.0), ([5], -1.0), ([5], -2.0)):
            mine.token_ids += reply
            logits = torch.zeros(1, 8)
            counts.penalise(logits, [0], [mine])
            assert logits[0].tolist() == [0.0] * 5 + [expected] + [0.0] * 2
    assert len(counts._in_reply) == 8


def test_biases_are_added_and_stop_ids_wait_for_min_tokens() -> None:
    biased = sequence(SamplingParams(logit_bias={2: 1.5, 4: -100.0}))
    early = sequence(SamplingParams(min_tokens=2, stop_token_ids=(3,)), reply=[1])
    late = sequence(SamplingParams(min_tokens=2, stop_token_ids=(3,)), reply=[1, 1])
    logits = torch.zeros(3, 6)
    add_biases(logits, [biased, early, late])
    assert logits.tolist() == [[0, 0, 1.5, 0, -100.0, 0], [0, 0, 0, -math.inf, 0, 0], [0.0] * 6]


def test_logprobs_are_the_models_own() -> None:
    asked, silent = sequence(SamplingParams(logprobs=2)), sequence(SamplingParams())
    entries = token_logprobs(LOGITS.expand(2, -1), torch.tensor([4, 0]), [asked, silent])
    expected = LOGITS.log_softmax(-1)
    assert entries[1] is None
    assert entries[0] is not None
    assert entries[0].logprob == pytest.approx(float(expected[4]))
    assert [i for i, _ in entries[0].top] == [0, 3]
    assert token_logprobs(LOGITS[None], torch.tensor([4]), [silent]) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", -1),
        ("n", 0),
        ("max_tokens", 0),
        ("logprobs", 21),
        ("logit_bias", {3: 101.0}),
        ("stop", ("",)),
    ],
)
def test_a_parameter_out_of_range_is_an_error_that_names_it_and_its_range(name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=rf"^{name}\b.* is .*; it must be "):
        SamplingParams(**{name: value})  # type: ignore[arg-type]
