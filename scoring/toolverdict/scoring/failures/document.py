"""The failure report for machines."""

from dataclasses import asdict
from typing import Any, Final

from toolverdict.scoring.failures.report import Drawn, Report

VERSION: Final = 1
"""Version of the form of the document; fields are only ever added within one."""


def as_document(report: Report, toolverdict: str) -> dict[str, Any]:
    """The report as JSON; ``toolverdict`` is the version that made it."""
    return {
        "version": VERSION,
        "toolverdict": toolverdict,
        "by": list(report.by),
        "seed": report.seed,
        "failures": report.failures,
        "strata_not_drawn": report.strata_not_drawn,
        "strata": [
            {
                **dict(zip(report.by, stratum.key, strict=True)),
                "failures": stratum.size,
                "weight": stratum.weight,
                "drawn": len(stratum.drawn),
                "each_stands_for": stratum.each,
            }
            for stratum in report.strata
        ],
        "overview": asdict(report.overview),
        "trajectories": [_drawn(one) for one in report.drawn],
    }


def _drawn(one: Drawn) -> dict[str, Any]:
    document = asdict(one)
    failure = document.pop("failure")
    own_weight = failure.pop("weight")
    return {**failure, "adjusted_count": own_weight, **document}
