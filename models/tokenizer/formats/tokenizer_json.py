"""Hugging Face's `tokenizer.json`, as far as it describes byte-level BPE that splits text as GPT-2 does.

Such a file says how text is changed, split, merged and put together again. Whatever it says that would give other ids
than this program's is refused by name. Its added tokens, special or not, are this program's special tokens.
"""

import json

from models.files import read_json, replacing
from models.tokenizer.formats.printable_tokens import ordinary_ids, printable_merges, tokenizer_from

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# What must stand at each place, besides its absence, for the ids to be GPT-2's.
MODEL_OPTIONS = {
    "dropout": (None, 0),
    "unk_token": (None, ""),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (False,),
    "ignore_merges": (False,),
}
ADDED_TOKEN_OPTIONS = ("single_word", "lstrip", "rstrip")


def read(path):
    """Read a file. Raises FileNotFoundError, or ValueError for one that is not such a tokenizer, saying where."""
    document = read_json(path)
    if not isinstance(model := document.get("model"), dict):
        raise ValueError(f"{path} is not a tokenizer.json: it has no object 'model'.")
    for problem in _problems(document, model):
        raise ValueError(f"{path}: {problem}. This program reads byte-level BPE with GPT-2's splitting.")
    special_ids = _added_tokens(document, path)
    vocabulary = model["vocab"]
    for token, token_id in special_ids.items():
        if vocabulary.get(token, token_id) != token_id:
            other = vocabulary[token]
            raise ValueError(f"{path}: added_tokens gives {token!r} the id {token_id}, model.vocab {other}.")
    ordinary = {token: token_id for token, token_id in vocabulary.items() if token not in special_ids}
    return tokenizer_from(ordinary, list(_merges(model["merges"], path)), special_ids, f"{path}, model.vocab")


def write(tokenizer, path):
    """Write a file that `tokenizers.Tokenizer.from_file` reads."""
    options = {"special": True, "normalized": False} | dict.fromkeys(ADDED_TOKEN_OPTIONS, False)
    added = [
        {"id": token_id, "content": token} | options
        for token, token_id in tokenizer.special_tokens.items()
    ]
    model = {
        "type": "BPE",
        **{name: allowed[0] for name, allowed in MODEL_OPTIONS.items()},
        "fuse_unk": False,
        # Special tokens too: one that the model does not list would be numbered anew, after all others.
        "vocab": ordinary_ids(tokenizer) | tokenizer.special_tokens,
        "merges": printable_merges(tokenizer),
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": model,
    }
    with replacing(path) as file:
        file.write(json.dumps(document, indent=1).encode("ascii"))


def _problems(document, model):
    """Yield what a document says that this program does otherwise."""
    if model.get("type", "BPE") != "BPE":
        yield f"model.type is {model['type']!r}, not 'BPE'"
    for name, allowed in MODEL_OPTIONS.items():
        if model.get(name, allowed[0]) not in allowed:
            yield f"model.{name} is {model[name]!r}, not {allowed[0]!r}"
    for name, kind in (("vocab", dict), ("merges", list)):
        if not isinstance(model.get(name), kind):
            yield f"model.{name} is missing or not a {'table' if kind is dict else 'list'}"
    if document.get("normalizer") is not None:
        yield f"normalizer is {_type(document['normalizer'])}, not null: it changes the text"
    splitter = document.get("pre_tokenizer")
    if not isinstance(splitter, dict) or splitter.get("type") != "ByteLevel":
        yield f"pre_tokenizer is {_type(splitter)}, not ByteLevel"
    elif splitter.get("add_prefix_space", True) or not splitter.get("use_regex", True):
        yield "pre_tokenizer should have add_prefix_space false and use_regex true"
    if not _adds_nothing(document.get("post_processor")):
        yield f"post_processor is {_type(document['post_processor'])}: it adds tokens to the text"
    if _type(document.get("decoder")) != "ByteLevel":
        yield f"decoder is {_type(document.get('decoder'))}, not ByteLevel"


def _adds_nothing(post_processor):
    """Whether a post-processor leaves the ids of one text as they are, as transformers' empty template does."""
    kind = _type(post_processor)
    if kind == "TemplateProcessing":
        template = post_processor.get("single")
        return isinstance(template, list) and all(isinstance(part, dict) and "Sequence" in part for part in template)
    return kind in ("null", "ByteLevel")


def _type(part):
    if part is None:
        return "null"
    return part.get("type", "without a type") if isinstance(part, dict) else repr(part)


def _added_tokens(document, path):
    """{text: id} of added_tokens."""
    ids = {}
    for index, token in enumerate(document.get("added_tokens") or ()):
        place = f"{path}, added_tokens[{index}]"
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or "id" not in token:
            raise ValueError(f"{place} should be an object with content and id.")
        if options := [name for name in ADDED_TOKEN_OPTIONS if token.get(name)]:
            raise ValueError(f"{place}: {token['content']!r} has {options[0]} true, which this program has not.")
        ids[token["content"]] = token["id"]
    return ids


def _merges(merges, path):
    """Yield (place, left, right); tokenizers writes pairs since version 0.20 and wrote one str before."""
    for index, merge in enumerate(merges):
        place = f"{path}, model.merges[{index}]"
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{place}: {merge!r} should be two tokens.")
        yield place, *parts
