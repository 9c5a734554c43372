"""Learning byte-pair merges from counted words (Sennrich et al., 2016; byte level as in GPT-2).

All words lie end to end in one list with an edge between them, linked both ways, so a merge touches only the
places where its pair stands: over a whole training the work is proportional to the length of the distinct words.
"""

from collections import Counter, defaultdict
from heapq import heapify, heappop, heappush

from models.tokenizer.gpt2_vocabulary import ID_FROM_BYTE

EDGE = -1

# Of equally frequent pairs the one with the smaller numbers is merged, so how bytes are numbered decides.
TIE_BREAKS = {"gpt2": ID_FROM_BYTE, "bytes": tuple(range(256))}


def byte_numbers(tie_break):
    """The number of each byte while pairs are compared. Raises ValueError unless `tie_break` is "gpt2" or "bytes"."""
    if tie_break not in TIE_BREAKS:
        raise ValueError(f"tie_break={tie_break!r} should be 'gpt2', as in tokenizers, or 'bytes', as in rustbpe.")
    return TIE_BREAKS[tie_break]


def in_gpt2_order(merges, numbers):
    """Merges with bytes numbered as in GPT-2 instead of by `numbers`, a list of (left rank, right rank)."""
    ranks = {number: ID_FROM_BYTE[byte] for byte, number in enumerate(numbers)}
    return [(ranks.get(left, left), ranks.get(right, right)) for left, right in merges]


def learn_merges(count_from_word, limit, numbers=ID_FROM_BYTE):
    """The merges, a list of at most `limit` id pairs, that byte-pair encoding learns from {word bytes: count}.

    Merge k makes token 256 + k; bytes have the ids `numbers`. Each step merges the most frequent pair; among equally
    frequent pairs the one with the smallest (left id, right id), which depends on neither the order of the words nor
    hashing. With GPT-2's numbers that is the choice of Hugging Face's trainer. Overlapping pairs all count: `aaa` holds
    (a, a) twice. The list is shorter than `limit` when no pair is left. Counts are Python integers and cannot overflow.
    """
    symbols, weights = _lay_out(count_from_word, numbers)
    previous = list(range(-1, len(symbols) - 1))
    following = list(range(1, len(symbols) + 1))
    counts, positions = _count_pairs(symbols, weights)
    queue = [(-count, pair) for pair, count in counts.items()]
    heapify(queue)
    merges = []

    while queue and len(merges) < limit:
        negative_count, pair = heappop(queue)
        # A count only rises in the merge that creates its pair and falls afterwards, so an entry that is out of
        # date stands too early in the queue, never too late.
        if -negative_count != counts[pair]:
            if counts[pair] > 0:
                heappush(queue, (-counts[pair], pair))
            continue

        left, right = pair
        merged = 256 + len(merges)
        merges.append(pair)
        created = set()
        for position in positions.pop(pair):
            neighbour = following[position]
            if symbols[position] != left or symbols[neighbour] != right:
                continue
            before, after, weight = previous[position], following[neighbour], weights[position]
            symbols[position], symbols[neighbour] = merged, EDGE
            following[position], previous[after] = after, position
            if symbols[before] != EDGE:
                counts[symbols[before], left] -= weight
                _add_pair((symbols[before], merged), before, weight, counts, positions, created)
            if symbols[after] != EDGE:
                counts[right, symbols[after]] -= weight
                _add_pair((merged, symbols[after]), position, weight, counts, positions, created)
        for new_pair in created:
            if counts[new_pair] > 0:
                heappush(queue, (-counts[new_pair], new_pair))
    return merges


def _lay_out(count_from_word, numbers):
    """Byte ids of all words with an EDGE before, between and after them, and the word's count at each place."""
    symbols, weights = [EDGE], [0]
    for word, count in count_from_word.items():
        symbols += [*(numbers[byte] for byte in word), EDGE]
        weights += [count] * len(word) + [0]
    return symbols, weights


def _count_pairs(symbols, weights):
    counts, positions = Counter(), defaultdict(list)
    for position in range(len(symbols) - 1):
        pair = symbols[position], symbols[position + 1]
        if EDGE not in pair:
            _add_pair(pair, position, weights[position], counts, positions, set())
    return counts, positions


def _add_pair(pair, position, weight, counts, positions, created):
    counts[pair] += weight
    positions[pair].append(position)
    created.add(pair)
