"""Why the library does not do what follows a product: a stable code, a sentence, and what would lift it."""

from __future__ import annotations

from dataclasses import dataclass

REASONS: dict[str, tuple[str, str]] = {
    "epilogue-f64": ("the library has no epilogues for f64", "nothing: f64 is for checking, not for speed"),
    "epilogue-other": (
        "the library has no epilogue that computes {}",
        "nothing: a generated kernel does it, in one pass over the result",
    ),
    "epilogue-reads": (
        "it reads {} otherwise than element by element or column by column",
        "give it the shape of the product, or of one of its rows",
    ),
    "epilogue-outputs": (
        "it writes {} tensors, which are not GELU and what GELU is taken of",
        "nothing: the library writes no others",
    ),
    "epilogue-type": ("{} is of {}, and the library reads {} beside this product", "cast it to the product's type"),
    "epilogue-in-place": (
        "an output takes the memory of {}, which the library may still read",
        "nothing: one pass of a generated kernel saves that memory",
    ),
    "epilogue-alignment": (
        "rows of {} elements of {} are no multiple of 16 bytes",
        "make the number of columns a multiple of 8",
    ),
    "epilogue-unsupported": (
        "the library on this device has no algorithm for the product with {}",
        "give operands rows of 16 bytes or multiples of that",
    ),
    "epilogue-gelu-f32": (
        "the library does not say how exact its GELU is, and f32 has digits to lose",
        "compute in bf16 or f16",
    ),
    "epilogue-gelu-slower": (
        "GELU in a kernel of its own was not slower on this device, or nobody has measured it there",
        "nothing: it is measured once on a GPU, and the cache keeps what was faster",
    ),
}
"""By code: why the library does not do it, and what would lift that. Figures stand for {}."""


@dataclass(frozen=True)
class Declined:
    """Why the library does not do an epilogue: ``code`` is one of REASONS, ``facts`` are the figures of this case."""

    code: str
    facts: tuple = ()

    @property
    def why(self) -> str:
        return REASONS[self.code][0].format(*self.facts)

    @property
    def hint(self) -> str:
        return REASONS[self.code][1]
