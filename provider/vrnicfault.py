# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Faults of the vrnic adapter, for tests in a guest: a rule is set for the guest's own device, and ends with its scope.

docs/faults.md has the rules. The process needs CAP_SYS_ADMIN, and the operator's permission (guest-faults=yes).

    with Fault("vrnic0", "fail-request status=rem-op-err nth=3") as fault:
        ...
        assert fault.hits() == 1
"""

import fcntl
import os
import time

POLL_INTERVAL = 0.005


class Refused(ValueError):
    """The adapter refuses a rule, and says why."""


class Fault:
    """A rule for a device, in force until `clear` or the end of a `with` block."""

    def __init__(self, device, rule):
        address = os.path.basename(os.path.realpath(f"/sys/class/infiniband/{device}/device"))
        self._file = f"/sys/kernel/debug/vrnic-{address}/faults"
        file = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Until the number of the new rule is known, nobody else adds one.
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                os.write(file, rule.encode())
            except OSError as error:
                lines = _lines(file)
                if lines and lines[0].startswith("refused "):
                    raise Refused(lines[0].removeprefix("refused ")) from error
                raise
            self._number = max(int(line.split()[1]) for line in _lines(file) if line.startswith("rule "))
        finally:
            os.close(file)

    def hits(self):
        """Returns how often the rule has hit. LookupError: it has ended, such as by a reset of the device."""
        file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for line in _lines(file):
                words = line.split()
                if words[:2] == ["rule", str(self._number)]:
                    return int(words[words.index("hit") + 1])
        finally:
            os.close(file)
        raise LookupError("the rule has ended")

    def wait(self, hits=1, timeout=10.0):
        """Waits until the rule has hit this often. TimeoutError: it has not within so many seconds."""
        end = time.monotonic() + timeout
        while self.hits() < hits:
            if time.monotonic() >= end:
                raise TimeoutError(f"the rule has hit {self.hits()} times")
            time.sleep(POLL_INTERVAL)

    def clear(self):
        """Removes the rule. A second call does nothing."""
        number, self._number = self._number, 0
        if number == 0:
            return
        file = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, f"clear {number}".encode())
        finally:
            os.close(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.clear()
        except OSError:
            # A reset of the device has ended the rule as well.
            pass


def _lines(file):
    """Returns the lines of the open file."""
    text = b""
    while part := os.read(file, 1 << 16):
        text += part
    return text.decode().splitlines()
