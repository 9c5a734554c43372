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


def pattern_of(tokens, kind=str):
    """A compiled pattern that finds `tokens`, the longest of those that begin at one place; None of no tokens.

    It searches texts or, with `bytes` for `kind`, UTF-8.
    """
    if not tokens:
        return None
    longest_first = [re.escape(token) for token in sorted(tokens, key=len, reverse=True)]
    if kind is bytes:
        # In UTF-8 no character begins inside of another, so that the places are the same.
        return re.compile(b"(" + b"|".join(token.encode("utf-8", "surrogatepass") for token in longest_first) + b")")
    return re.compile(f"({'|'.join(longest_first)})")


def split_at(tokens, text):
    """[text, token, text, token, ..., text], as `pattern_of` finds them."""
    pattern = pattern_of(tokens)
    return pattern.split(text) if pattern else [text]


def permitted(known, text, allowed_special, disallowed_special):
    """The set of those among the `known` special tokens that are allowed.

    Raises ValueError for a disallowed one in the text, a str or UTF-8 bytes, and for allowing one that is not known.
    """
    for name, tokens in (("allowed_special", allowed_special), ("disallowed_special", disallowed_special)):
        if tokens != "all" and (isinstance(tokens, str) or "" in tokens):
            raise ValueError(f"{name} is {tokens!r}. Give a set of texts, or 'all'.")
    allowed = set(known if allowed_special == "all" else allowed_special)
    if unknown := allowed - set(known):
        raise ValueError(
            f"{sorted(unknown)[0]!r} is not a special token of this vocabulary, which has {list(known)}. "
            "Pass a set of these, or 'all'."
        )
    disallowed = set(known) - allowed if disallowed_special == "all" else set(disallowed_special)
    pattern = pattern_of(disallowed, str if isinstance(text, str) else bytes)
    if found := pattern and pattern.search(text):
        token = found[0] if isinstance(text, str) else found[0].decode("utf-8")
        raise ValueError(
            f"The text contains the special token {token!r}. To encode it as its own id, pass "
            f"allowed_special={{{token!r}}}; to encode it as ordinary text, pass disallowed_special=(), "
            "or call encode_ordinary to do so for every special token."
        )
    return allowed
