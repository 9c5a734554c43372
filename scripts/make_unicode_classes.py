"""Write models/tokenizer/unicode_classes.zlib: the class of every code point as tiktoken's regex engine sees it.

Run from the repository root with tiktoken installed:  python scripts/make_unicode_classes.py
The counts below are those of Unicode 16.0; a tiktoken built on another version is refused, because a changed
table would silently change the ids of every tokenizer already saved.
"""

import zlib
from pathlib import Path

import numpy as np
import tiktoken

CODE_POINTS = 0x110000
PATTERNS = {1: r"\p{L}", 2: r"\p{N}", 3: r"\s"}
EXPECTED_COUNTS = {1: 141_028, 2: 1_911, 3: 25}
DESTINATION = Path(__file__).parent.parent / "models" / "tokenizer" / "unicode_classes.zlib"


def characters_matching(pattern, text):
    """All characters of `text` that the pattern matches: tiktoken drops what its pattern does not match."""
    single_bytes = {bytes([value]): value for value in range(256)}
    encoding = tiktoken.Encoding("classes", pat_str=pattern, mergeable_ranks=single_bytes, special_tokens={})
    return bytes(encoding.encode_ordinary(text)).decode("utf-8")


def build_table():
    every_character = "".join(map(chr, [*range(0xD800), *range(0xE000, CODE_POINTS)]))
    table = np.zeros(CODE_POINTS, np.uint8)
    for number, pattern in PATTERNS.items():
        members = [ord(character) for character in characters_matching(pattern, every_character)]
        if len(members) != EXPECTED_COUNTS[number]:
            raise SystemExit(
                f"{pattern} matches {len(members)} code points, Unicode 16.0 has {EXPECTED_COUNTS[number]}: "
                "this tiktoken is built on another Unicode version."
            )
        table[members] = number
    return table


if __name__ == "__main__":
    DESTINATION.write_bytes(zlib.compress(build_table().tobytes(), level=9))
    print(f"wrote {DESTINATION} ({DESTINATION.stat().st_size} bytes)")
