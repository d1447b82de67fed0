"""How long a run will still take, from how long its updates took."""

import time

CONSISTENT = 2.3  # how many plain updates one with consistency takes, until it was seen: 2.26 to 2.33 on CPUs


class Pace:
    """Seconds an update, plain or with consistency, and all that lies between updates."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.seconds = {False: 0.0, True: 0.0}
        self.updates = {False: 0, True: 0}

    def count(self, consistent: bool, updates: int = 1) -> None:
        """The time since the last call went to an update of a kind, or with 0 to what follows one."""
        now = time.monotonic()
        self.seconds[consistent] += now - self.last
        self.updates[consistent] += updates
        self.last = now

    def minutes(self, plain: int, consistent: int) -> float:
        """How long so many updates of each kind will take; 0 as long as no update was counted."""
        each = {kind: self.seconds[kind] / made for kind, made in self.updates.items() if made}
        if not each:
            return 0.0
        if True not in each:
            each[True] = each[False] * CONSISTENT
        if False not in each:
            each[False] = each[True] / CONSISTENT
        return (plain * each[False] + consistent * each[True]) / 60
