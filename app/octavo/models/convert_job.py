"""The child that converts: `python -m octavo.models.convert_job GGUF TARGET`."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from octavo.errors import PullError
from octavo.models.work import complain, first_line

FULL_PRECISION_BYTES = 1_000_000_000  # bigger GGUF files become bfloat16, or they would not fit into memory


def main(gguf: Path, target: Path) -> None:
    """Load with transformers and save again, in float32 unless the file is big; raises PullError."""
    dtype = torch.float32 if gguf.stat().st_size < FULL_PRECISION_BYTES else torch.bfloat16
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=dtype)
    except Exception as error:  # the border of this process: a broken file raises whatever the parsers meet
        raise PullError(f"{gguf.name} cannot be converted: {first_line(error)}", "Take another model.") from error
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(model)  # the weights are plain by now; saving would refuse otherwise
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except PullError as error:
        complain(error)
        sys.exit(1)
