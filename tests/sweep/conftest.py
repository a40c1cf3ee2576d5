"""One thread in the sweep's workers, and one line about its pairs at the end."""

import json
import os

import pytest
import torch

ROWS = pytest.StashKey[list]()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_configure(config):
    config.stash.setdefault(ROWS, [])
    config.pluginmanager.register(Rows(config), "sweep-rows")


class Rows:
    """Collects what `settle` recorded, in the process that shows the summary."""

    def __init__(self, config):
        self.config = config
        self.rows, self.crashed = config.stash[ROWS], []

    def pytest_runtest_logreport(self, report):
        found = [value for key, value in report.user_properties if key == "sweep"]
        if report.when == "call":
            self.rows.extend(found)
            self.log(found)
        elif report.when == "???" or (report.failed and not found and "crashed" in str(report.longrepr)):
            self.crashed.append(report.nodeid)
            self.log([{"crashed": report.nodeid}])

    def log(self, rows):
        """The rows as they come, one JSON line each, into the file that SWEEP_ROWS names."""
        if rows and (path := os.environ.get("SWEEP_ROWS")) and not hasattr(self.config, "workerinput"):
            with open(path, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

    def pytest_terminal_summary(self, terminalreporter):
        from .summary import line

        if self.rows or self.crashed:
            terminalreporter.write_line(line(self.rows, self.crashed))
