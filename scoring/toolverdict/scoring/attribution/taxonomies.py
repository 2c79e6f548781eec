"""What others call our categories: maps to published taxonomies of agents' failures, as data files.

Each file names its source. A key is a category, or a category and the outcome of the call it is
about (``call_failed/timeout``), which comes first. A category that the other taxonomy has no word
for is null.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """One taxonomy: its name, where it was published, and its words for our categories."""

    name: str
    source: str
    words: dict[str, str | None]

    def word_for(self, category: str, detail: str | None = None) -> str | None:
        """Its word for a category; ``detail`` is how the call ended, or what became of it."""
        return self.words.get(f"{category}/{detail}", self.words.get(category))


@cache
def taxonomies() -> tuple[Taxonomy, ...]:
    """All that are known, by name."""
    files = sorted(Path(__file__).with_name("taxonomy_maps").glob("*.yaml"))
    return tuple(_read(file) for file in files)


def _read(file: Path) -> Taxonomy:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    if document["version"] != _VERSION:
        raise ValueError(f"{file}: version {document['version']}, known is {_VERSION}")
    source = document["source"]
    cited = f"{source['authors']} {source['year']}, {source['title']}, {source['id']}"
    return Taxonomy(document["name"], cited, document["categories"])
