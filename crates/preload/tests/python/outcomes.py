"""Runs tests of the standard library: outcomes.py LIST NAME…

Each line of the file LIST is an outcome and the name of a test: "started" before it runs, then "passed", "failed" or
"skipped". The file is complete up to the test that ends or stops the process.
"""

import faulthandler
import sys
import unittest
from test import support

# Seconds that a test may take; then the process ends.
TIMEOUT = 60

# Neither the network nor large files.
support.use_resources = []


class Outcomes(unittest.TestResult):
    def __init__(self, path):
        super().__init__()
        self.path = path
        self.failed = set()

    def write(self, outcome, test):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{outcome} {test.id()}\n")

    def startTest(self, test):
        super().startTest(test)
        faulthandler.dump_traceback_later(TIMEOUT, exit=True)
        self.write("started", test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.write("passed", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.write("failed", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.write("failed", test)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.write("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.write("skipped", test)

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.write("passed", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.write("failed", test)


def tests(suite):
    """The single tests, without those of VSOCK: one of them waits for ever on a virtual machine without a host that answers."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield unittest.TestSuite(tests(test))
        elif "VSOCK" not in test.id():
            yield test


result = Outcomes(sys.argv[1])
suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])
unittest.TestSuite(tests(suite)).run(result)
for test, text in result.errors + result.failures:
    print(f"== {test.id()}\n{text}")
