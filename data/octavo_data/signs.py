"""Which signs a text has, as bits of a number, so that an index tells which turns cannot have some emoji or "::".

The bits are those of the file's index: who changes them writes another migration.
"""

_ASCII = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
# From and to, code points whose UTF-8 differs in the last byte only, 64 each: finer where people take signs from.
_OTHERS = (
    (0x80, 0xBF), (0x2000, 0x203F), (0x2040, 0x20FF), (0x2100, 0x217F), (0x2180, 0x21FF), (0x2200, 0x22FF),
    (0x2300, 0x24FF), (0x2500, 0x257F), (0x2580, 0x25FF), (0x2600, 0x263F), (0x2640, 0x267F), (0x2680, 0x26BF),
    (0x26C0, 0x26FF), (0x2700, 0x273F), (0x2740, 0x277F), (0x2780, 0x28FF), (0x2900, 0x2BFF), (0x3000, 0x303F),
    (0xFF00, 0xFF7F), (0x1F000, 0x1F2FF), (0x1F300, 0x1F37F), (0x1F380, 0x1F3FF), (0x1F400, 0x1F43F),
    (0x1F440, 0x1F47F), (0x1F480, 0x1F4FF), (0x1F500, 0x1F5FF), (0x1F600, 0x1F63F), (0x1F640, 0x1F6BF),
    (0x1F6C0, 0x1F8FF), (0x1F900, 0x1F97F), (0x1F980, 0x1FAFF),
)  # fmt: skip
_BYTES = (
    *((sign.encode(),) for sign in _ASCII),
    *(tuple(chr(block).encode()[:-1] for block in range(first, last, 64)) for first, last in _OTHERS),
)
"""For each bit what is found in the UTF-8 of a text that has it."""


def signs_of(word: str) -> int:
    """Bits that a text with this word has too."""
    encoded = word.encode()
    return sum(1 << bit for bit, parts in enumerate(_BYTES) if any(part in encoded for part in parts))


def _bits(begin: int, end: int) -> str:
    terms = []
    for bit in range(begin, end):
        found = " OR ".join(f"instr({_TEXT}, x'{part.hex()}') > 0" for part in _BYTES[bit])
        terms.append(f"(({found}) << {bit})")
    return " | ".join(terms)


_TEXT = "CAST(prompt || reply AS BLOB)"
_NUM_ASCII = len(_ASCII)
_IS_ASCII = f"length(prompt || reply) = length({_TEXT})"  # that is, as many characters as bytes
SIGNS_OF_TURN = f"({_bits(0, _NUM_ASCII)} | iif({_IS_ASCII}, 0, {_bits(_NUM_ASCII, len(_BYTES))}))"
"""The same in SQL, of prompt and reply. The index serves only those who ask for exactly this."""
HAS_SIGNS = "status <> 'running' AND number IS NOT NULL"
"""The turns in the index: those that are over, once they have their number, so that this is reckoned once."""
