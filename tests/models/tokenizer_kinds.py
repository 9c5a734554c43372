"""Vocabularies with all that a file may have to hold, for the tests of the formats."""

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.gpt2_vocabulary import BYTE_FROM_ID

TEXT = "It's  a\r\n\ttest of Ünïcode 你好 😀 \0 and \x85 numbers 12345, don't you'LL\n\n  "


def tokenizers_of_many_kinds():
    learned = Tokenizer.train(TEXT * 3, 300)
    count = 256 + len(learned.merges)
    return {
        "plain": learned,
        "without special tokens": Tokenizer(learned.merges, []),
        "without merges": Tokenizer([]),
        "special tokens first": Tokenizer(learned.merges, {"<s>": 0, "</s>": 1}, range(2, 2 + count)),
        "with gaps": Tokenizer(learned.merges, {"<|x|>": 9_000}, [*range(0, 512, 2), *range(600, 344 + count)]),
        "bytes by value": Tokenizer(learned.merges, ["<|x|>"], [*BYTE_FROM_ID, *range(256, count)]),
        "odd special tokens": learned.with_special_tokens(["a b\nc", "(.*)+[", "\\ ", "\r\n", "<|a|>", "<|a|>b"]),
    }


def path_for(folder, format):
    if format == "gpt2":
        return folder
    return folder / ("vocabulary.tiktoken" if format == "tiktoken" else "tokenizer.json")
