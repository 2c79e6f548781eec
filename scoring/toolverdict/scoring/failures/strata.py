"""A stratified sample of failures: how many of each stratum, and which.

Each stratum gets its share of the sample, and at least a floor, so that what is rare is seen too.
Which of a stratum are drawn is decided by a keyed hash of their ids: the same seed draws the same,
in whatever order they come, and one more failure changes as little as can be.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import nsmallest
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""What the members of a stratum have in common, in the order of the dimensions."""

_LARGEST_SEED: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Stratum:
    """One stratum: how many there are, for how many they stand, and those that were drawn.

    A drawn one of adjusted count ``w`` stands for ``w * size / len(drawn)``; with that weight,
    shares of strata that were drawn from are estimated without bias. ``weight`` is None where the
    adjusted count of a member is not known.
    """

    key: Key
    size: int
    weight: float | None
    drawn: tuple[str, ...]

    @property
    def each(self) -> float | None:
        """For how many of its stratum each drawn one stands; None where none was drawn."""
        return self.size / len(self.drawn) if self.drawn else None


def allocate(sizes: Mapping[Key, int], sample: int, floor: int, seed: int = 0) -> dict[Key, int]:
    """How many to draw of each stratum: proportional to its size, but no fewer than the floor.

    A stratum smaller than the floor is drawn whole. Where the sample is too small for every floor,
    the floor is lowered; where there are more strata than the sample has places, the largest get
    one each. Who is next of equals is decided by the seed: the same sizes and seed give the same.
    """
    total = sum(sizes.values())
    sample = min(sample, total)
    while floor > 1 and sum(min(floor, size) for size in sizes.values()) > sample:
        floor -= 1
    least = {key: min(floor, size) for key, size in sizes.items()}
    if sum(least.values()) > sample:
        lot = _lot(seed)
        largest = set(sorted(sizes, key=lambda key: (-sizes[key], lot("\0".join(key))))[:sample])
        return {key: int(key in largest) for key in sizes}
    # Whoever is owed less than the floor gets the floor; the others share what is left, until
    # nobody is below.
    given = dict(least)
    open_ = {key for key in sizes if sizes[key] > least[key]}
    while open_:
        left = sample - sum(given[key] for key in sizes if key not in open_)
        of = sum(sizes[key] for key in open_)
        below = {key for key in open_ if left * sizes[key] < least[key] * of}
        if not below:
            given |= _largest_remainders({key: sizes[key] for key in open_}, left, seed)
            break
        open_ -= below
    return given


def _largest_remainders(sizes: Mapping[Key, int], places: int, seed: int) -> dict[Key, int]:
    """Whole places in proportion to sizes; places never exceed the sum of sizes."""
    total = sum(sizes.values())
    given = {key: places * size // total for key, size in sizes.items()}
    left = places - sum(given.values())
    lot = _lot(seed)
    by_remainder = sorted(
        sizes, key=lambda key: (-(places * sizes[key] % total), lot("\0".join(key)))
    )
    return given | {key: given[key] + 1 for key in by_remainder[:left]}


def draw(members: Iterable[str], count: int, seed: int) -> tuple[str, ...]:
    """That many of the members, by a keyed hash of each and the seed; in the order of the hash."""
    return tuple(nsmallest(count, members, key=_lot(seed)))


def _lot(seed: int) -> Callable[[str], tuple[bytes, str]]:
    """What decides between equals: nothing about them but their text, and the seed."""
    key = (seed & _LARGEST_SEED).to_bytes(8, "little")

    def lot(text: str) -> tuple[bytes, str]:
        encoded = text.encode("utf-8", "surrogatepass")
        return blake2b(encoded, digest_size=8, key=key).digest(), text

    return lot


def stratify(
    members: Sequence[tuple[str, Key, float | None]], sample: int, floor: int, seed: int
) -> list[Stratum]:
    """The strata of these members, the largest first.

    Args:
        members: id, key of the stratum, and adjusted count of each.
        sample: how many to draw in all; fewer where there are fewer.
        floor: how many to draw at least of each stratum, as far as the sample goes.
        seed: of the draw.
    """
    ids: dict[Key, list[str]] = {}
    weights: dict[Key, float | None] = {}
    for member, key, weight in members:
        ids.setdefault(key, []).append(member)
        so_far = weights.get(key, 0.0)
        weights[key] = None if weight is None or so_far is None else so_far + weight
    counts = allocate({key: len(own) for key, own in ids.items()}, sample, floor, seed)
    strata = [
        Stratum(key, len(own), weights[key], draw(own, counts[key], seed))
        for key, own in ids.items()
    ]
    return sorted(strata, key=lambda stratum: (-stratum.size, stratum.key))
