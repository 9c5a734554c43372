"""GPT-2's two files, `encoder.json` (token to id) and `vocab.bpe` (merges in order).

Hugging Face names them `vocab.json` and `merges.txt`, and puts later special tokens into `added_tokens.json`. What is
neither a byte nor made by a merge is a special token.
"""

import json
from pathlib import Path

from models.files import read_json, replacing
from models.tokenizer.formats.printable_tokens import (
    check_ids,
    lost_merge,
    ordinary_ids,
    printable_merges,
    tokenizer_from,
)
from models.tokenizer.gpt2_vocabulary import CHARACTER_FROM_ID

NAMES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
ADDED = "added_tokens.json"
HEADER = "#version: 0.2"


def read(folder, special_tokens=None):
    """Read the two files of a folder, under either pair of names, and `added_tokens.json` if it is there.

    `special_tokens` are texts that are special although they look like two tokens side by side, which otherwise is
    taken as the sign that merges are missing. Raises FileNotFoundError, or ValueError if the files are not what they
    should be, or do not belong together.
    """
    paths = [tuple(Path(folder) / name for name in names) for names in NAMES]
    for encoder_json, vocab_bpe in paths:
        if encoder_json.exists() and vocab_bpe.exists():
            added = Path(folder) / ADDED
            added_tokens = read_json(added) if added.exists() else {}
            return read_pair(encoder_json, vocab_bpe, special_tokens or (), added_tokens)
    names = " nor ".join(" with ".join(names) for names in NAMES)
    raise FileNotFoundError(f"{folder} has no tokenizer: neither tokenizer.json nor {names}.")


def read_pair(encoder_json, vocab_bpe, special_tokens=(), added_tokens=()):
    """Read two files of any name, and the {text: id} of special tokens that stand beside them. Raises as `read`."""
    id_from_token = read_json(encoder_json) | dict(added_tokens)
    check_ids(id_from_token, encoder_json)
    merges = list(_merges(vocab_bpe))
    ordinary = {*CHARACTER_FROM_ID, *(left + right for _, left, right in merges)}
    special_ids = {token: token_id for token, token_id in id_from_token.items() if token not in ordinary}
    for token, token_id in special_ids.items():
        if token not in special_tokens and token not in added_tokens and (pair := lost_merge(token, ordinary)):
            raise ValueError(
                f"{encoder_json} has the token {token!r} (id {token_id}), but {vocab_bpe} has no merge that makes it, "
                f"such as {' '.join(pair)!r}. Was it cut short? If it is a special token, name it in special_tokens."
            )
    return tokenizer_from(id_from_token, merges, special_ids, encoder_json)


def write(tokenizer, folder, names=NAMES[0]):
    """Write the two files into a folder, made if need be, under GPT-2's names or another pair of names.

    Raises ValueError for a vocabulary that the files cannot hold.
    """
    id_from_token = ordinary_ids(tokenizer) | tokenizer.special_tokens
    merges = [HEADER, *(f"{left} {right}" for left, right in printable_merges(tokenizer))]
    Path(folder).mkdir(parents=True, exist_ok=True)
    encoder_json, vocab_bpe = (Path(folder) / name for name in names)
    with replacing(encoder_json) as ids_file, replacing(vocab_bpe) as merges_file:
        ids_file.write(json.dumps(id_from_token).encode("ascii"))
        merges_file.write(("\n".join(merges) + "\n").encode("utf-8"))
        # A full disk shows here, before either file is replaced.
        ids_file.flush()


def _merges(vocab_bpe):
    """Yield (place, left, right); only the first line can be a comment, since a merge may itself start with '#'."""
    lines = Path(vocab_bpe).read_bytes().decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, start=1):
        is_header = number == 1 and line.startswith("#version")
        is_end = number == len(lines) and not line
        if is_header or is_end:
            continue
        place, parts = f"{vocab_bpe}, line {number}", line.removesuffix("\r").split(" ")
        if len(parts) != 2 or not all(parts):
            raise ValueError(f"{place}: {line!r} should be two tokens with one blank between.")
        yield place, *parts
