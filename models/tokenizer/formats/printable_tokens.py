"""Tokens as GPT-2's files write them: one printable character for each byte (see gpt2_vocabulary)."""

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID, CHARACTER_FROM_ID, ID_FROM_BYTE

BYTES_SHOWN = 5


def printable(token_bytes):
    """The bytes of a token as a str of printable characters."""
    return "".join(CHARACTER_FROM_ID[ID_FROM_BYTE[byte]] for byte in token_bytes)


def ordinary_ids(tokenizer):
    """{printable token: id} of all but the special tokens, by rank.

    Raises ValueError if two tokens have the same bytes, or one is written as a special token is.
    """
    ids = tokenizer.ids or range(256 + len(tokenizer.merges))
    id_from_token = {printable(tokenizer.token_bytes(token_id)): token_id for token_id in ids}
    if len(id_from_token) < len(ids):
        raise ValueError("Two merges of this vocabulary make the same bytes, which only its own format can hold.")
    if both := id_from_token.keys() & tokenizer.special_tokens.keys():
        raise ValueError(f"{min(both)!r} is a special token and an ordinary one, which only its own format can hold.")
    return id_from_token


def printable_merges(tokenizer):
    """The merges in order as pairs of printable tokens."""
    tokens = list(ordinary_ids(tokenizer))
    return [(tokens[left], tokens[right]) for left, right in tokenizer.merges]


def tokenizer_from(id_from_token, merges, special_tokens, source):
    """The tokenizer of {printable token: id}, merges [(place, left token, right token), ...] and special {text: id}.

    `source` and the places are words for messages. Raises ValueError where these do not make one byte-level BPE
    vocabulary.
    """
    check_ids(id_from_token | special_tokens, source)
    made = {*CHARACTER_FROM_ID, *(left + right for _, left, right in merges)}
    if both := sorted(made & special_tokens.keys()):
        raise ValueError(f"{source}: {both[0]!r} is a special token and an ordinary one. This program needs two ids.")
    written = zip(BYTE_FROM_ID, CHARACTER_FROM_ID, strict=True)
    if missing := [f"0x{byte:02x}" for byte, character in written if character not in id_from_token]:
        shown = ", ".join(missing[:BYTES_SHOWN]) + (", ..." if len(missing) > BYTES_SHOWN else "")
        raise ValueError(
            f"{source} has no token for {len(missing)} of the 256 bytes ({shown}), so it cannot encode every "
            "text. Train it with all bytes, in tokenizers by initial_alphabet=ByteLevel.alphabet()."
        )
    rank_from_token = {character: rank for rank, character in enumerate(CHARACTER_FROM_ID)}
    pairs = []
    for place, left, right in merges:
        if left not in rank_from_token or right not in rank_from_token:
            raise ValueError(f"{place}: {left!r} {right!r} is not a merge of two tokens known so far.")
        merged = left + right
        if merged not in id_from_token:
            raise ValueError(f"{place}: {left!r} {right!r} makes {merged!r}, which {source} has no id for.")
        if merged in rank_from_token:
            raise ValueError(f"{place}: {left!r} {right!r} makes {merged!r}, as a merge before it does.")
        pairs.append((rank_from_token[left], rank_from_token[right]))
        rank_from_token[merged] = len(rank_from_token)
    ids = [id_from_token[token] for token in rank_from_token]
    if stray := [token for token in id_from_token if token not in rank_from_token and token not in special_tokens]:
        raise ValueError(
            f"{source} has an id for {stray[0]!r}, but it is no special token and no merge makes it. "
            "The merges may have been cut short."
        )
    try:
        return Tokenizer(pairs, special_tokens, ids)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def check_ids(id_from_token, source):
    """Raise ValueError unless the ids are different integers from 0 on."""
    token_from_id = {}
    for token, token_id in id_from_token.items():
        if type(token_id) is not int or token_id < 0:
            raise ValueError(f"{source} gives {token!r} the id {token_id!r}, which is not an integer from 0 on.")
        if token_id in token_from_id:
            raise ValueError(f"{source} gives {token!r} and {token_from_id[token_id]!r} the same id {token_id}.")
        token_from_id[token_id] = token


def lost_merge(token, known):
    """(left, right) if a token is two `known` ones side by side, as one is whose merge has been cut off; else None."""
    cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
    return next((pair for pair in cuts if pair[0] in known and pair[1] in known), None)
