"""Our logits equal transformers' own on tiny random models of every architecture that we claim."""

from pathlib import Path

import pytest
import torch
from tests.engine.architectures import ARCHITECTURES, CPU, REFUSED, build, largest_error

from octavo_engine.errors import ModelError
from octavo_engine.runner import routing
from octavo_engine.runner.reading import load_model


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_transformers_own(name: str) -> None:
    assert largest_error(name, CPU) < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_be_silently_wrong_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    build(*REFUSED[name], "eager").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot run here: "):
        routing.probe(load_model(tmp_path, torch.float32, CPU))
