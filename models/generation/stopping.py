"""Token ids that arrive one at a time, as text that ends before a stop string."""

from models.tokenizer.bpe import StreamDecoder


class StopStrings:
    """Text that arrives in parts, as far as the first stop string, whichever way it is cut into parts.

    Of two stop strings the one that is complete first counts, and of those the longest. What may still begin one is
    held back, and nothing else. Raises ValueError for an empty stop string.
    """

    def __init__(self, strings):
        self._strings = tuple(strings)
        if "" in self._strings:
            raise ValueError("A stop string is empty. Give at least one character that ends the text.")
        self._held = ""
        self.stopped = False

    def push(self, text):
        """What is certain not to belong to a stop string, now that `text` has arrived; nothing once one is complete."""
        if self.stopped:
            return ""
        self._held += text
        found = [(place + len(string), place) for string in self._strings if (place := self._held.find(string)) >= 0]
        if found:
            self.stopped = True
            certain = min(found)[1]
        else:
            certain = len(self._held) - self._begun()
        shown, self._held = self._held[:certain], self._held[certain:]
        return shown

    def finish(self):
        """What was held back, when no more text comes."""
        rest, self._held = self._held, ""
        return "" if self.stopped else rest

    def _begun(self):
        """Length of the longest beginning of a stop string that the held text ends with."""
        longest = max((len(string) - 1 for string in self._strings), default=0)
        lengths = range(min(longest, len(self._held)), 0, -1)
        return next((size for size in lengths if self._begins(self._held[-size:])), 0)

    def _begins(self, end):
        return any(string.startswith(end) for string in self._strings)


class TextStream:
    """Turns ids into text: whole characters, as far as the first of the `stop` strings, which itself is not shown."""

    def __init__(self, tokenizer, stop=()):
        self._decoder, self._stop = StreamDecoder(tokenizer), StopStrings(stop)

    @property
    def stopped(self):
        """Whether a stop string is complete."""
        return self._stop.stopped

    def push(self, token_id):
        """The text that can be shown with this id, perhaps empty."""
        return self._stop.push(self._decoder.push(token_id))

    def finish(self):
        """What is left when no more ids come."""
        return self._stop.push(self._decoder.finish()) + self._stop.finish()
