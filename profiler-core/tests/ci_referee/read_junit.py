"""Prints as JSON what junitparser reads in the JUnit file that is named.

    read_junit.py FILE
"""

import json
import sys

from junitparser import Error, Failure, JUnitXml, Skipped

OUTCOMES = {Failure: "failure", Error: "error", Skipped: "skipped"}
TOTALS = ("tests", "failures", "errors", "skipped")


def outcome(case):
    kinds = [OUTCOMES[type(result)] for result in case.result]
    assert len(kinds) <= 1, kinds
    return kinds[0] if kinds else "passed"


def totals(suite):
    return {name: getattr(suite, name) for name in TOTALS}


suites = list(JUnitXml.fromfile(sys.argv[1]))
assert len(suites) == 1, suites
suite = suites[0]
written = totals(suite)
cases = [{"name": case.name, "classname": case.classname, "outcome": outcome(case)} for case in suite]
suite.update_statistics()
json.dump({"suite": suite.name, "written": written, "counted": totals(suite), "cases": cases}, sys.stdout)
