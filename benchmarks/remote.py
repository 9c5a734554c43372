"""An object in a process of its own, so that a peer's memory, threads and imports are its own."""

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

# Idle threads of a peer spin for a while before they sleep.
PAUSE_SECONDS = 0.05


class PeerError(RuntimeError):
    """A peer died, or computes something else than euler_ir."""


class Remote:
    """``make(*arguments)`` in a new process, on behalf of the peer ``name``; a context manager that ends it."""

    def __init__(self, name, make, *arguments):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def call(self, method, *arguments):
        """What the method of the object returns. Raises PeerError when the process ends instead."""
        self._connection.send((method, arguments))
        return self._receive()

    def _receive(self):
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise PeerError(f"{self.name} died with exit code {self._process.exitcode}; see its error above.") from None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._connection.close()
        self._process.join(timeout=0 if any(error) else 10)
        self._process.kill()
        self._process.join()


def _serve(connection, make, arguments):
    """The main function of the process."""
    subject = make(*arguments)
    connection.send(None)
    while True:
        try:
            method, given = connection.recv()
        except EOFError:
            return
        connection.send(getattr(subject, method)(*given))


def run_alone(peer, module, *arguments, environment=None):
    """What `python -m benchmarks.MODULE ARGUMENTS` says in JSON on its last line. Raises PeerError when it fails."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, check=False, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise PeerError(f"{peer} died with exit code {done.returncode}; see its error above.")
    return json.loads(done.stdout.splitlines()[-1])


def take_turns(remotes, rounds, method, *arguments):
    """Call ``method`` on each of ``remotes`` in turn, ``rounds`` times: what each returned, by name, a list a round.

    Each round begins with another one, so that none always runs in the wake of the same.
    """
    results = {remote.name: [] for remote in remotes}
    for turn in range(rounds):
        first = turn % len(remotes)
        for remote in remotes[first:] + remotes[:first]:
            time.sleep(PAUSE_SECONDS)
            results[remote.name].append(remote.call(method, *arguments))
    return results


def resident_mib(field):
    """Memory of this process in MiB: now ('VmRSS') or at most ('VmHWM')."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024
