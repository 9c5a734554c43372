"""Texts that stand for one id each, such as `<|endoftext|>`, and who may write them. The contract is tiktoken's."""

import re

from models.tokenizer.pretokenize import text_from

END_OF_TEXT = "<|endoftext|>"


def checked_special_tokens(special_tokens):
    """The tokens as a list. Raises ValueError if one is empty, repeated, not a string or not valid Unicode."""
    tokens = [special_tokens] if isinstance(special_tokens, str) else list(special_tokens)
    for token in tokens:
        if not isinstance(token, str) or not token or token != text_from(token):
            raise ValueError(f"Special token {token!r} must be a non-empty string of valid Unicode.")
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"Special tokens {tokens} repeat one another. Name each once.")
    return tokens


def split_at(tokens, text, maxsplit=0):
    """[text, token, text, token, ..., text], preferring the longest of tokens that begin at one place."""
    if not tokens:
        return [text]
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text, maxsplit=maxsplit)


def split_as_permitted(known, text, allowed_special, disallowed_special):
    """Split at the allowed ones among the `known` special tokens, as `split_at`.

    Raises ValueError for a disallowed one in the text, and for allowing one that is not known.
    """
    allowed = set(known if allowed_special == "all" else allowed_special)
    if unknown := allowed - set(known):
        raise ValueError(
            f"{sorted(unknown)[0]!r} is not a special token of this vocabulary, which has {list(known)}. "
            "Pass a set of these, or 'all'."
        )
    disallowed = set(known) - allowed if disallowed_special == "all" else set(disallowed_special)
    if found := split_at(disallowed, text, maxsplit=1)[1:2]:
        raise ValueError(
            f"The text contains the special token {found[0]!r}. To encode it as its own id, pass "
            f"allowed_special={{{found[0]!r}}}; to encode it as ordinary text, pass disallowed_special=(), "
            "or call encode_ordinary to do so for every special token."
        )
    return split_at(allowed, text)
