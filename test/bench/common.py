"""What everything here uses: programs run to their end, files allowed, failing.

For:     all of test/bench.
Must not know: what is measured.
Entry points: run, Failed, files_allowed, all_files, TICK, PAGE, HERE, REPO.
"""

import os
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(REPO, "test", "lib"))

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """A program of the benchmark failed; the text says how."""


def files_allowed():
    """Descriptors that a process here may have at most."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def all_files():
    """In a child: as many descriptors as it may have."""
    hard = files_allowed()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(command, **more):
    """The output of a program that must succeed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, **more)
    if done.returncode != 0:
        raise Failed("%s\n%s" % (" ".join(command)[:400], (done.stdout + done.stderr)[-4000:]))
    return done.stdout


def cpu_of(pid):
    """Seconds of CPU used until now: (by the process, by its children that have ended)."""
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return ((int(fields[11]) + int(fields[12])) / TICK, (int(fields[13]) + int(fields[14])) / TICK)
