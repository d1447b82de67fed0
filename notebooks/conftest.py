"""Strict nbval, but for what differs between processors: a chart is compared by its text, not its digits."""

import pytest

# A translation has its lesson's code and outputs, which the pair check holds: once is enough.
collect_ignore_glob = ["[a-z][a-z]/*"]
CHARTS = ("application/vnd.vegalite.v5+json",)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave the data of charts out of the comparison; the cell that draws one asserts it with a tolerance."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += CHARTS
