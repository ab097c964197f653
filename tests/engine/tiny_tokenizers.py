"""Small real tokenizers of the kinds that write text differently, built on the spot."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WORDS = ("Hi", "there", "the", "cat", "é", "你", "好", "😀", "a", "b", ".", ",", "'s")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
SPECIALS = ("<s>", "</s>", "<unk>")


def byte_level() -> Tokenizer:
    """GPT-2's kind: every token is a run of bytes, a character may be spread over several."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [split.pre_tokenize_str(space + word)[0][0] for word in WORDS for space in ("", " ")]
    parts = [piece[:size] for piece in pieces for size in range(1, len(piece) + 1)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = finished(dict.fromkeys([*SPECIALS, *alphabet, *parts]), decoders.ByteLevel())
    tokenizer.pre_tokenizer = split
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Llama-2's kind: words after "▁", one token for each byte that has no word, a leading space stripped."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    begins = [f"▁{word}" for word in WORDS]
    return finished(dict.fromkeys([*SPECIALS, *BYTES, "▁", *WORDS, *begins]), decoders.Sequence(steps))


def metaspace() -> Tokenizer:
    """T5's kind: words after "▁", no bytes; an unknown character is said as one replacement character."""
    return finished(
        dict.fromkeys([*SPECIALS, "▁", *WORDS, "\ufffd", *(f"▁{word}" for word in WORDS)]),
        decoders.Metaspace(),
    )


def word_piece() -> Tokenizer:
    """BERT's kind: "##" goes on with a word, everything else begins one."""
    return finished(
        dict.fromkeys([*SPECIALS, *WORDS, *(f"##{word}" for word in WORDS)]), decoders.WordPiece(cleanup=False)
    )


def finished(tokens: dict[str, None], decoder: decoders.Decoder) -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    return tokenizer
