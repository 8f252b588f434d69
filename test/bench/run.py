#!/usr/bin/python3
"""Measures qbouncer beside what one would use instead, on one Postgres, in one go.

    test/bench/run.py                    everything, up to an hour
    test/bench/run.py --publish          every subject in half an hour: for doc/bench.md
    test/bench/run.py --quick            everything in small sizes, a few minutes: does it run?
    test/bench/run.py select jobs        these parts only
    test/bench/run.py --publish --write  and writes doc/bench.md
    test/bench/run.py --write jobs       and writes these parts of it

It prints figures and judges none: on a busy machine only ratios and `instructions` mean anything.
Builds qbouncer itself (-O2 over all files at once, as the package does; no sanitizers) unless --program names one, installs what is missing of
what it is compared with (Debian packages; graphile-worker, pg-boss and pgmq by npm, into the
build directory), and leaves nothing running. What cannot be had is named and left out. No part begins
after the plan's time is over.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback

import readme
import report
from common import HERE, REPO, Failed
from contenders.node import Node
from contenders.pgmq import Pgmq
from figures import Figures
from loads import bulk, cancel, clock, consumers, cores, death, disturb, flow, handlers, jobs, latency, outside, passing, soak, streams, tenants, waiting
from plan import PLANS
from programs import build, check_program, facts, installed, newest_pgbouncer, prepares
from rig import Rig

# in the order in which they run: what goals are about first, as the time may not suffice for all
PARTS = {
    "select": passing.select,
    "tls": passing.tls,
    "connect": passing.connect,
    "cancel": cancel.cancel,
    "rows": bulk.rows,
    "copy": bulk.copy,
    "idle": waiting.idle,
    "park": waiting.park,
    "jobs": jobs.jobs,
    "batches": jobs.batches,
    "latency": latency.latency,
    "limits": flow.limits,
    "streams": streams.streams,
    "consumers": consumers.consumers,
    "runs": handlers.runs,
    "sessions": handlers.sessions,
    "publish": jobs.publish,
    "queues": jobs.queues,
    "tenants": tenants.tenants,
    "disturb": disturb.disturb,
    "backlog": disturb.backlog,
    "death": death.death,
    "storm": waiting.storm,
    "processes": cores.processes,
    "schedules": clock.schedules,
    "push": jobs.push,
    "drain": jobs.drain,
    "protocols": jobs.protocols,
    "prepared": jobs.prepared,
    "outside": outside.outside,
    "soak": soak.soak,
    "libraries": jobs.libraries,
    "slowdisk": disturb.slowdisk,
    "instructions": passing.instructions,
    "statements": jobs.statements,
}

# by callgrind
COUNTED = {"instructions", "statements"}


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    p.add_argument("--publish", action="store_const", dest="plan", const="publish", default="full",
                   help="every subject but instructions, in half an hour")
    p.add_argument("--quick", action="store_const", dest="plan", const="quick",
                   help="short rounds, fewer clients")
    p.add_argument("--rounds", type=int, help="of each contender, in place of the plan's")
    p.add_argument("--seconds", type=float, help="of one round")
    p.add_argument("--finished", type=int, help="jobs finished under a transaction held open")
    p.add_argument("--soak", type=float, metavar="MINUTES", help="of each pooler in the part soak")
    p.add_argument("--unix", action="store_true", help="clients come by the unix socket, not TCP")
    p.add_argument("--write", action="store_true", help="write doc/bench.md, and the figures of README.md")
    p.add_argument("--program", help="qbouncer to measure; a build of this tree otherwise")
    p.add_argument("--newest", action="store_true",
                   help="beside the pgbouncer of Debian's newest suite, unpacked into the build directory")
    p.add_argument("--build-dir", default=os.path.join(REPO, "build", "bench"))
    args = p.parse_args()
    for name in args.parts:
        if name not in PARTS:
            p.error("there is no part %s: %s" % (name, ", ".join(PARTS)))
    if not args.parts:
        args.parts = [n for n in PARTS if args.plan == "full" or n not in COUNTED]
    return args


def plan_of(args):
    """The preset, as the command line changes it."""
    plan = PLANS[args.plan]
    if args.rounds:
        plan = plan.but(rounds=args.rounds, select_rounds=args.rounds, connect_rounds=args.rounds)
    if args.seconds:
        plan = plan.but(seconds=args.seconds)
    if args.soak:
        plan = plan.but(soak=args.soak * 60, limit=plan.limit + args.soak * 150)
    if args.finished:
        plan = plan.but(finished=args.finished)
    return plan


# a part that takes longer than that hangs, seconds
PATIENCE = {"full": 1500, "publish": 400, "quick": 300}


class Late(Exception):
    """It takes too long. Not a kind of Failed, which who runs several contenders takes for the end of one of them."""


@contextlib.contextmanager
def at_most(seconds):
    """Late when it takes longer."""
    def late(*_):
        raise Late("it did not end within %d s" % seconds)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_part(rig, name, plan):
    """Its table. Whatever goes wrong is told, and is the end of this part only: None."""
    try:
        with at_most(PATIENCE[plan.name] + plan.soak):
            return PARTS[name](rig, plan)._replace(part=name)
    except (Failed, Late, RuntimeError) as failed:
        print("%s: %s" % (name, failed), file=sys.stderr, flush=True)
    except Exception:   # a mistake of ours, a full disk, a program that died: the other parts are worth the same
        traceback.print_exc()
    rig.tidy()
    return None


def measure(rig, names, plan, until, then=lambda tables, missing: None):
    """The tables, each printed as soon as it is there, and the names of the parts that are not. then: is told of them
    after each part."""
    tables, missing = [], []
    for name in names:
        began = time.monotonic()
        if began > until:
            missing.append("%s (no time left)" % name)
        else:
            print("\n%s: %s ..." % (name, PARTS[name].__doc__), file=sys.stderr, flush=True)
            table = one_part(rig, name, plan)
            if table is None:
                missing.append("%s (failed)" % name)
            else:
                tables.append(table)
                print("\n%s\n(%s: %.0f s)" % (report.as_text(table), name, time.monotonic() - began), flush=True)
        then(tables, missing)
    return tables, missing


def writer(args, known, began):
    """What writes doc/bench.md, and README's figures, with the tables that are there, when it is asked for. Of parts
    that were not measured it keeps what an earlier run had."""
    words = [a for a in sys.argv[1:] if "/" not in a and a not in ("--write", "--program", "--build-dir")]
    command = " ".join([os.path.relpath(os.path.join(HERE, "run.py"), REPO), "--write", *words])

    def write(tables, missing):
        facts_now = [*known, ("took", "%.0f s" % (time.monotonic() - began))]
        if missing:
            facts_now.append(("missing", ", ".join(missing)))
        if args.write and tables:
            for table in tables:
                figures.put(table, known)
            report.write(os.path.join(REPO, "doc", "bench.md"), facts_now, figures.tables(PARTS), command)
            figures.save()
            report.rewrite(os.path.join(REPO, "README.md"),
                           lambda text: readme.update(text, tables, dict(known)["pgbouncer"]))

    figures = Figures(os.path.join(HERE, "figures.json"))
    return write


def main():
    """0: all parts ran."""
    args = arguments()
    plan = plan_of(args)
    pgbouncer = newest_pgbouncer(os.path.join(args.build_dir, "pgbouncer")) if args.newest else installed("pgbouncer")
    installed("gcc")
    installed("openssl")
    if COUNTED & set(args.parts):
        installed("valgrind")
    program = args.program or build(args.build_dir)
    check_program(program)
    Node.where = Pgmq.where = os.path.join(args.build_dir, "node")
    if "outside" in args.parts:
        outside.fetch()
    began = time.monotonic()
    rig = Rig(program, pgbouncer, scale=plan.scale, unix=args.unix)
    rig.prepares = prepares(pgbouncer)
    try:
        rig.start()
        known = facts(rig, pgbouncer, program, plan)
        print(report.facts_as_text(known), flush=True)
        tables, missing = measure(rig, args.parts, plan, began + plan.limit, writer(args, known, began))
    finally:
        rig.remove()
    if report.goals_table(tables):
        print("\n" + report.as_text(report.goals_table(tables)))
    print("\n%d parts in %.0f s%s" % (len(tables), time.monotonic() - began,
                                      "; missing: " + ", ".join(missing) if missing else ""))
    return 1 if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print("bench: %s" % failed, file=sys.stderr)
        sys.exit(1)
