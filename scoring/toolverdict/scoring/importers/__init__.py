"""Cases that were written for other tools, as cases of ours.

One module per source, each a function from a document to cases as our files spell them (see
:mod:`toolverdict.scoring.cases.formats`). What a case of ours cannot say is never dropped in
silence: it is noted as a loss, with the place where it stands.
"""

from toolverdict.scoring.importers.imported import Imported
from toolverdict.scoring.importers.registry import IMPORTERS, import_cases
from toolverdict.scoring.importers.strictness import Strictness

__all__ = ["IMPORTERS", "Imported", "Strictness", "import_cases"]
