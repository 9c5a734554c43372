"""Merges as other programs learn them."""

import json

import rustbpe
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from models.tokenizer.gpt2_vocabulary import CHARACTER_FROM_ID

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def hugging_face_merges(text, vocab_size):
    """Merges as id pairs learned by the tokenizers library from one document."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text], trainer)
    ids = {character: token_id for token_id, character in enumerate(CHARACTER_FROM_ID)}
    merges = []
    for left, right in json.loads(tokenizer.to_str())["model"]["merges"]:
        merges.append((ids[left], ids[right]))
        ids[left + right] = len(ids)
    return merges


def rustbpe_merges(text, limit):
    """What each of `limit` merges makes, as bytes, learned by rustbpe from one document."""
    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator([text], 256 + limit, pattern=GPT2_PATTERN)
    return [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()][256:]
