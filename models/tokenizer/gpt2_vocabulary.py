"""GPT-2's numbering of single bytes.

In the files of its vocabulary a token is written with one printable character for each byte: bytes that are printable
in Latin-1 stand for themselves, the other 68 are written as U+0100, U+0101, ... in byte order. Sorting all 256 by that
character gives the ids 0 to 255.
"""

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_FROM_ID = (*_PRINTABLE, *_HIDDEN)
ID_FROM_BYTE = tuple(BYTE_FROM_ID.index(byte) for byte in range(256))
CHARACTER_FROM_ID = (*map(chr, _PRINTABLE), *(chr(256 + n) for n in range(len(_HIDDEN))))
