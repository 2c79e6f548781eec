"""The report as JUnit XML, which CI systems show as tests: one per check.

A check that fails is a ``failure``; one that does not decide is an ``error``, so that nobody takes
it for a pass. Only printable characters are written, so the file is XML 1.0 whatever a trace holds.
"""

from xml.etree import ElementTree

from toolverdict.scoring.gate.checks import Check, State
from toolverdict.scoring.gate.formats.words import MOST_LISTED, and_more, sentence
from toolverdict.scoring.gate.report import GateReport
from toolverdict.scoring.terminal import plain

_SUITE = "toolverdict gate"
_ELEMENTS = {State.FAIL: "failure", State.INCONCLUSIVE: "error"}


def as_junit(report: GateReport) -> bytes:
    """The XML document, UTF-8."""
    counts = {
        "tests": str(len(report.checks)),
        "failures": str(report.count(State.FAIL)),
        "errors": str(report.count(State.INCONCLUSIVE)),
        "skipped": "0",
        "time": "0.0",
    }
    suites = ElementTree.Element("testsuites", {"name": _SUITE, **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _SUITE, **counts})
    for check in report.checks:
        test = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": "toolverdict.gate",
                "name": check.id,
                "file": plain(report.gate),
                "line": str(report.line(check)),
                "time": "0.0",
            },
        )
        element = _ELEMENTS.get(check.state)
        if element is not None:
            said = {"message": plain(check.message), "type": check.state.value}
            ElementTree.SubElement(test, element, said).text = _body(check)
    ElementTree.indent(suites)
    text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _body(check: Check) -> str:
    lines = [plain(check.message), *(sentence(one) for one in check.culprits[:MOST_LISTED])]
    more = and_more(len(check.culprits))
    return "\n".join([*lines, more] if more else lines)
