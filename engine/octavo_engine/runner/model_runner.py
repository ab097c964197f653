"""Runs a batch through a transformers model over the paged cache: the general path, right for every architecture."""

from functools import partial

import torch
from transformers import PreTrainedModel

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.params import SamplingParams
from octavo_engine.runner.attention import AttentionBackend
from octavo_engine.runner.device_memory import tells_when_full
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.sampler import Sampler


class TransformersRunner:
    """All rows go through the model as one packed row of tokens; attention tells them apart."""

    num_decode_steps = max_decode_steps = 1

    def __init__(self, model: PreTrainedModel, cache: KVCache, backend: AttentionBackend, sampler: Sampler) -> None:
        self._model = model
        self._cache = cache
        self._backend = backend
        self._sampler = sampler
        self.vocabulary = sampler.vocabulary

    def check(self, params: SamplingParams) -> None:
        """See ModelRunner."""
        self._sampler.check(params)

    def launch(self, batch: Batch) -> PendingStep:
        """See ModelRunner. Computed in `wait`, on a GPU too: the models of transformers wait for it now and then."""
        return PendingStep(partial(self._compute, batch))

    @tells_when_full
    @torch.inference_mode()
    def _compute(self, batch: Batch) -> StepOutput:
        logits = forward(self._model, self._cache, self._backend, batch)
        sampling = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        return self._sampler.sample(logits, sampling) if sampling else StepOutput([])


def forward(model: PreTrainedModel, cache: KVCache, backend: AttentionBackend, batch: Batch) -> torch.Tensor:
    """Write the batch's KV; returns the logits of its rows that sample, (rows, vocabulary)."""
    if batch.copies:
        cache.copy(batch.copies)
    backend.begin(batch)
    rows = sampling_rows(batch)
    out = model(
        input_ids=torch.tensor([batch.token_ids], device=model.device),
        position_ids=torch.tensor([batch.positions], device=model.device),
        use_cache=False,
        logits_to_keep=torch.tensor(rows or [0], device=model.device),
    )
    logits: torch.Tensor = out.logits[0]
    return logits[: len(rows)]


def sampling_rows(batch: Batch) -> list[int]:
    """The flat index of the last token of each row that samples."""
    rows, end = [], 0
    for length, samples in zip(batch.query_lens, batch.samples, strict=True):
        end += length
        if samples:
            rows.append(end - 1)
    return rows
