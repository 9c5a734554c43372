"""Examples to learn from, and examples held back."""

import json

from models.random_streams import random_stream

_SPLIT_STREAM = 0x73706C6974


def split_by_question(examples, question, share, seed):
    """(to learn from, held back) of a list, in an order decided by the seed: `share` of the questions are held back.

    `question(example)` is what it answers, as JSON can hold it. Examples of one question stay on one side, so that none
    that is held back was learned under another answer. Raises ValueError unless 0 <= share < 1.
    """
    if not 0 <= share < 1:
        raise ValueError(f"The share held back must be at least 0 and below 1, not {share}. Try 0.05.")
    groups = {}
    for example in examples:
        groups.setdefault(json.dumps(question(example)), []).append(example)
    order = random_stream(seed, _SPLIT_STREAM).permutation(len(groups))
    groups = list(groups.values())
    count = int(share * len(groups))
    learned, held_back = (
        [example for place in part for example in groups[place]] for part in (order[count:], order[:count])
    )
    return learned, held_back
