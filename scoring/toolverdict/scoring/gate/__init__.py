"""The gate: may this version go out? Pass, fail or inconclusive, from what ``score`` wrote.

The road, in the order of the data: :mod:`evidence` (``OUT`` to shares per trajectory) →
:mod:`intervals` (shares to rates) → :mod:`checks` (rates against :mod:`gate_file`) → :mod:`report`
→ :mod:`formats`.
"""
