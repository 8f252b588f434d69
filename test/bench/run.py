#!/usr/bin/python3
"""Measures qbouncer beside Debian's pgbouncer, on one Postgres, in one go.

    test/bench/run.py                    everything, about 15 minutes
    test/bench/run.py --quick            everything but `instructions`, about 90 s: does it run?
    test/bench/run.py select jobs        these parts: select instructions idle park latency jobs
    test/bench/run.py --write            and writes doc/bench.md

It prints figures and judges none: on a busy machine only ratios and `instructions` mean anything.
Builds qbouncer itself (-O2, no sanitizers) unless --program names one, installs Debian's pgbouncer
and the compiler if they are missing, and leaves nothing running.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time

from parts import FULL, PARTS, QUICK
from rig import REPO, Failed, Rig, run
import report

PACKAGES = {"pgbouncer": "pgbouncer", "gcc": "gcc libc6-dev", "valgrind": "valgrind"}


def installed(program):
    """The path of a program; installs its package when there is none."""
    def find():
        return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if find() is None:
        print("installing %s" % program, file=sys.stderr)
        script = 'uid=$(id -u); . "$1/dev/packages.sh"; packages_install /dev/stderr %s' % PACKAGES[program]
        subprocess.run(["sh", "-c", script, "sh", REPO], stdin=subprocess.DEVNULL, check=False)
        if program == "pgbouncer":  # the package starts a service of its own, which nobody here wants
            subprocess.run(["sh", "-c", "command -v service >/dev/null && service pgbouncer stop"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
    path = find()
    if path is None:
        raise Failed("%s is missing and could not be installed" % program)
    return path


def build(where):
    """A release build out of the tree; returns the program."""
    os.makedirs(where, exist_ok=True)
    if not os.path.exists(os.path.join(REPO, "configure")):
        run(["sh", os.path.join(REPO, "autogen.sh")], cwd=REPO)
    if not os.path.exists(os.path.join(where, "Makefile")):
        run([os.path.join(REPO, "configure"), "-q", "CFLAGS=-O2 -g"], cwd=where)
    run(["make", "-s", "-j%d" % (os.cpu_count() or 1), "qbouncer"], cwd=where)
    return os.path.join(where, "qbouncer")


def check_program(path):
    """A sanitized build would be measured in vain."""
    with open(path, "rb") as program:
        if b"__asan_init" in program.read():
            raise Failed("%s was built with sanitizers" % path)


def first_match(path, pattern):
    """The first group of the first match in a file of the system."""
    try:
        with open(path, encoding="utf-8", errors="replace") as text:
            found = re.search(pattern, text.read(), re.M)
            return found.group(1) if found else "unknown"
    except OSError:
        return "unknown"


def commit():
    """The commit of this tree, and whether something in it is not committed."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", REPO]
        text = run([*git, "describe", "--always", "--exclude=*"]).strip()
        dirty = run([*git, "status", "--porcelain", "--untracked-files=no"]).strip()
        return text + (" with changes" if dirty else "")
    except (Failed, OSError):
        return "unknown"


def facts(rig, pgbouncer, qbouncer, plan):
    """What a figure is worth nothing without."""
    memory = int(first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")) / 1048576
    return [
        ("date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
        ("machine", "%s, %d cores, %.0f GiB" % (
            first_match("/proc/cpuinfo", r"^model name\s*: (.*)"), os.cpu_count() or 0, memory)),
        ("system", "%s, Linux %s" % (
            first_match("/etc/os-release", r'^PRETTY_NAME="(.*)"'), platform.release())),
        ("load before", "%.2f" % os.getloadavg()[0]),
        ("Postgres", rig.psql("SHOW server_version") + ", fsync on"),
        ("pgbouncer", run([pgbouncer, "--version"]).splitlines()[0]),
        ("qbouncer", run([qbouncer, "--version"]).strip()),
        ("commit", commit()),
        ("clients by", "unix socket" if rig.unix else "TCP over loopback"),
        ("plan", "quick" if plan.idle == QUICK.idle else "full"),
    ]


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    p.add_argument("--quick", action="store_true", help="short rounds, fewer clients")
    p.add_argument("--rounds", type=int, help="of each contender, in place of the plan's")
    p.add_argument("--seconds", type=int, help="of one round of pgbench")
    p.add_argument("--unix", action="store_true", help="clients come by the unix socket, not TCP")
    p.add_argument("--write", action="store_true", help="write doc/bench.md")
    p.add_argument("--program", help="qbouncer to measure; a build of this tree otherwise")
    p.add_argument("--build-dir", default=os.path.join(REPO, "build", "bench"))
    args = p.parse_args()
    for name in args.parts:
        if name not in PARTS:
            p.error("there is no part %s: %s" % (name, ", ".join(PARTS)))
    if not args.parts:
        args.parts = [n for n in PARTS if not (args.quick and n == "instructions")]
    return args


def measure(rig, names, plan):
    """The tables, each printed as soon as it is there."""
    tables = []
    for name in names:
        print("\n%s: %s ..." % (name, PARTS[name].__doc__), file=sys.stderr, flush=True)
        tables.append(PARTS[name](rig, plan))
        print("\n" + report.as_text(tables[-1]), flush=True)
    return tables


def main():
    """0: all parts ran."""
    args = arguments()
    plan = QUICK if args.quick else FULL
    if args.rounds:
        plan = plan._replace(rounds=args.rounds, jobs_rounds=args.rounds)
    if args.seconds:
        plan = plan._replace(seconds=args.seconds, jobs_seconds=args.seconds)
    began = time.monotonic()
    pgbouncer = installed("pgbouncer")
    installed("gcc")
    if "instructions" in args.parts:
        installed("valgrind")
    program = args.program or build(args.build_dir)
    check_program(program)
    rig = Rig(program, pgbouncer, scale=1 if args.quick else 10, unix=args.unix)
    try:
        rig.start()
        known = facts(rig, pgbouncer, program, plan)
        print(report.facts_as_text(known), flush=True)
        tables = measure(rig, args.parts, plan)
    finally:
        rig.remove()
    print("\n%d parts in %.0f s" % (len(tables), time.monotonic() - began))
    if args.write:
        words = [a for a in sys.argv[1:] if a != "--write" and "/" not in a]
        report.write(os.path.join(REPO, "doc", "bench.md"), known, tables,
                     " ".join(["test/bench/run.py", "--write", *words]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print("bench: %s" % failed, file=sys.stderr)
        sys.exit(1)
