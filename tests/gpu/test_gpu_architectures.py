"""The general path on CUDA: whole models in float32 against transformers, and weights that go straight to the GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.engine.architectures import ARCHITECTURES, build, largest_error

from octavo_engine.runner import routing
from octavo_engine.runner.reading import load_model

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def whole_float32() -> Iterator[None]:
    """Matrix products without TF32, which would keep 10 bits of 23."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_transformers_own(name: str) -> None:
    assert largest_error(name, CUDA) < 1e-4


def test_weights_read_straight_to_the_gpu_are_those_of_the_file(tmp_path: Path) -> None:
    kind, settings = ARCHITECTURES["qwen3"]
    written = build(kind, settings, "eager")
    written.save_pretrained(tmp_path)
    read = load_model(tmp_path, torch.float32, CUDA)
    assert read.config._attn_implementation == routing.ATTENTION_NAME
    assert {tensor.device.type for tensor in (*read.parameters(), *read.buffers())} == {"cuda"}
    theirs = dict(written.named_parameters())
    for name, parameter in read.named_parameters():
        assert torch.equal(parameter.cpu(), theirs[name]), name
