"""The filters of sampling: which ids stay, for all rows of a batch at once."""

from dataclasses import dataclass

import torch

from octavo_engine.runner.transfer import upload_as
from octavo_engine.runner.uniform import uniform
from octavo_engine.sequence import Sequence

NUM_CANDIDATES = 1024
"""Ids that are sorted before a whole vocabulary is: nearly every top-p set is smaller."""


@dataclass(frozen=True, slots=True)
class RowParams:
    """Sampling parameters of each row as tensors, (rows,) each; the flags say which stages any row needs.

    Of a static one nothing may depend on the values on the host, which does not wait for them, so whole vocabularies
    are sorted; in a CUDA graph, whose tensors stay while their values change, all stages run, too.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor
    is_all_greedy: bool
    has_top: bool
    has_min_p: bool
    is_static: bool = False

    @classmethod
    def of(cls, sequences: list[Sequence], device: torch.device, *, is_static: bool = False) -> "RowParams":
        params = [sequence.params for sequence in sequences]
        return cls(
            temperature=upload_as(torch.float32, [p.temperature for p in params], device),
            top_k=upload_as(torch.int64, [p.top_k for p in params], device),
            top_p=upload_as(torch.float32, [p.top_p for p in params], device),
            min_p=upload_as(torch.float32, [p.min_p for p in params], device),
            seed=upload_as(torch.int64, [s.seed for s in sequences], device),
            is_all_greedy=all(p.temperature == 0 for p in params),
            has_top=any(p.top_k or p.top_p < 1 for p in params),
            has_min_p=any(p.min_p > 0 for p in params),
            is_static=is_static,
        )

    @classmethod
    def buffers(cls, num_rows: int, device: torch.device) -> "RowParams":
        """A static one, of greedy rows until `set` is called."""
        zeros = torch.zeros(num_rows, device=device)
        seed = torch.zeros(num_rows, dtype=torch.int64, device=device)
        ones, top_k = torch.ones_like(zeros), torch.zeros_like(seed)
        return cls(zeros, top_k, ones, zeros.clone(), seed, False, True, True, is_static=True)

    def set(self, sequences: list[Sequence]) -> None:
        """Copy the parameters of sequences into the first rows of a static one."""
        values = RowParams.of(sequences, torch.device("cpu"))
        for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
            value = getattr(values, name)
            pinned = value.pin_memory() if self.seed.is_cuda else value
            getattr(self, name)[: len(sequences)].copy_(pinned, non_blocking=True)


def draw(logits: torch.Tensor, rows: RowParams, position: torch.Tensor) -> torch.Tensor:
    """One id a row, (rows,), from logits, (rows, vocabulary). Temperature 0 takes the largest logit.

    The draw walks the vocabulary in the order of its ids, whatever filters the other rows use, so that a seeded row
    gives the same id in every company.
    """
    greedy = logits.argmax(-1)
    if rows.is_all_greedy:
        return greedy
    is_greedy = rows.temperature == 0
    probs = (logits / torch.where(is_greedy, 1.0, rows.temperature)[:, None]).softmax(-1)
    cumulative = keep_likely(probs, rows).cumsum(-1)
    total = cumulative[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))  # rounding must not carry the target past the end
    target = (uniform(rows.seed, position)[:, None] * total).minimum(below_total)
    drawn = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return torch.where(is_greedy, greedy, drawn)


def keep_likely(probs: torch.Tensor, rows: RowParams) -> torch.Tensor:
    """Zero in probs, (rows, vocabulary), what the filters drop; not renormalised.

    In this order: top-k; top-p over what top-k left; min-p against the likeliest id. Ids that tie with the last one
    kept are kept too.
    """
    least = rows.min_p * probs.amax(-1) if rows.has_min_p else torch.zeros_like(rows.min_p)
    if rows.has_top:
        least = least.maximum(_least_of_top(probs, rows))
    return probs * (probs >= least[:, None])


def _least_of_top(probs: torch.Tensor, rows: RowParams) -> torch.Tensor:
    """The smallest probability that top-k and top-p keep, (rows,); 0 where both are off."""
    by_rank = rows.top_k > 0
    ranked = _ranked(probs, rows, by_rank)
    rank = torch.arange(ranked.shape[-1], device=probs.device)
    ranked = ranked * (~by_rank[:, None] | (rank < rows.top_k[:, None]))
    total = torch.where(by_rank, ranked.sum(-1), 1.0)
    before = ranked.cumsum(-1) - ranked
    is_kept = (before < (rows.top_p * total)[:, None]) & (ranked > 0)
    least = torch.where(is_kept, ranked, 1.0).amin(-1)
    return torch.where(by_rank | (rows.top_p < 1), least, 0.0)


def _ranked(probs: torch.Tensor, rows: RowParams, by_rank: torch.Tensor) -> torch.Tensor:
    """Probabilities from the largest down: as many as the filters can keep, or all of them."""
    vocabulary = probs.shape[-1]
    if not rows.is_static:
        count = min(vocabulary, max(NUM_CANDIDATES, int(rows.top_k.max())))
        ranked = probs.topk(count).values
        is_short = (ranked.sum(-1) < rows.top_p) & ~by_rank & (rows.top_p < 1)
        if count == vocabulary or not bool(is_short.any()):
            return ranked
    return probs.sort(descending=True).values
