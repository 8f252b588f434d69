#!/usr/bin/python3
"""Do the random programs see faults? Each of these is put into the schema of a database, never into the program, and random
programs have to go wrong there.

    /usr/bin/python3 test/check/faults.py --build DIR                      all of them
    /usr/bin/python3 test/check/faults.py --build DIR pause max_length     those with one of these words in their names

For:     the command line: after work on a model, or on what it is a model of. test/it/queue/test_queue_model.py has two of them.
Must not know: what the programs do.
Entry points: FAULTS, spoilt, is_found, main.
"""

import argparse
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

import psycopg  # noqa: E402

from limits import Limited  # noqa: E402
from model import Mismatch, one_program, quiet_proxy  # noqa: E402
from schema import install_script  # noqa: E402

TOLD = "coalesce(strpos(current_setting('qbouncer.tell', true) || ' ', ' @n@ '), 0) = 0 THEN\n\t\tPERFORM queue._tell(@n@, @name@);"
NOT_TOLD = TOLD.replace("= 0 THEN", "= 0 AND false THEN")
FREED = "IF NOT FOUND THEN\n\t\tRETURN NULL;\n\tEND IF;\n\tIF "
TELLS = [("PERFORM queue._tell(cfg.number, cfg.name);\t-- who waits may have what it waits for", ""),
         ("PERFORM queue._drop_flow(cfg);\n\t\t\tPERFORM queue._tell(cfg.number, cfg.name);", "PERFORM queue._drop_flow(cfg);"),
         ("queue._table(cfg.name));\n\tEND IF;\n\tPERFORM queue._tell(cfg.number, cfg.name);", "queue._table(cfg.name));\n\tEND IF;")]

# name: (subject of Limited, [(text of sql/, what it becomes), ...])
FAULTS = {
    "a kept key does not remember IF NEWER": ("keys", [
        ("VALUES (@n@, k, moment + keep, ours, last)", "VALUES (@n@, k, moment + keep, ours, NULL)"),
        ("coalesce(last, x.version) ELSE last END", "x.version ELSE NULL END")]),
    "a kept key does not remember a later IF NEWER": ("keys", [
        ("IF keep_for IS NOT NULL OR newer IS NOT NULL THEN\n\t\t\t\t\tPERFORM", "IF keep_for IS NOT NULL THEN\n\t\t\t\t\tPERFORM")]),
    "a kept key does not remember IF NEWER of the next job": ("keys", [
        ("SET job = ours, version = newer", "SET job = ours")]),
    "a kept key forgets FOR": ("keys", [("VALUES (@n@, k, moment + keep, ours", "VALUES (@n@, k, moment, ours")]),
    "RELEASE leaves it to run once more": ("keys", [("spent = coalesce(spent, 0) + 1, again = NULL, token", "spent = coalesce(spent, 0) + 1, token")]),
    "RELEASE does not know the time of REPLACE": ("keys", [
        ("CASE WHEN $3 > interval '0' OR again AND run_at > clock_timestamp() THEN", "CASE WHEN $3 > interval '0' THEN")]),
    "FAIL does not know the time of REPLACE": ("keys", [("\t\t\tWHEN again AND run_at > clock_timestamp() THEN 'later'\n", "")]),
    "max_length does not count what is blocked": ("lengths", [
        ("""UNION ALL (SELECT 1 FROM @table@ WHERE state = 'blocked' ORDER BY "group", id LIMIT most + 1)\n""", "")]),
    "drop_oldest does not count what is blocked": ("lengths", [
        ("\n\t\tUNION ALL SELECT state FROM @table@ WHERE state = 'blocked') AS unfinished", ") AS unfinished")]),
    "drop_oldest drops what is delayed first": ("lengths", [
        ("WHERE state = 'ready' AND priority > prio\n\t\t\t\tORDER BY", "WHERE false AND priority > prio\n\t\t\t\tORDER BY")]),
    "max_length does not count what is leased or later": ("lengths", [
        ("UNION ALL (SELECT 1 FROM @table@ WHERE due IS NOT NULL AND state IN ('later', 'leased') LIMIT most + 1)\n", "")]),
    "ALTER max_length leaves what was allowed": ("lengths", [("PERFORM setval(room, 0);", "NULL;")]),
    "drop_oldest drops one too few": ("lengths", [("over := least(n - most + slack,", "over := least(n - most - 1 + slack,")]),
    "drop_oldest drops what runs, too": ("lengths", [
        ("WHERE due IS NOT NULL AND state = 'later' ORDER BY", "WHERE due IS NOT NULL AND state IN ('later', 'leased') ORDER BY")]),
    "max_per_transaction is counted for each statement": ("lengths", [
        ("greatest(nullif(current_setting(setting, true), '')::int8, 0) + ", "")]),
    "max_running lets one more in": ("limits", [
        ("room := least(room, q.max_running - cardinality(still));", "room := least(room, q.max_running + 1 - cardinality(still));")]),
    "ALTER max_running does not know what runs": ("limits", [
        ("ARRAY(SELECT id FROM %2$s WHERE state = ''leased''), coalesce(max(tat)", "''{}''::int8[], coalesce(max(tat)"),
        ("coalesce(array_agg(id), '{}'), '-infinity' FROM %6$s", "'{}', '-infinity' FROM %6$s")]),
    "ALTER forgets the pause": ("limits", [("coalesce(max(rests), ''-infinity'') FROM old", "''-infinity'' FROM old")]),
    "ALTER forgets the rate": ("limits", [("coalesce(max(tat), ''-infinity''),", "''-infinity'',")]),
    "ALTER of limits wakes nobody": ("limits", TELLS),
    "DONE wakes nobody": ("limits", [(FREED + TOLD, FREED + NOT_TOLD)]),
    "hours are not heard": ("limits", [("IF queue._until_hours(q.hours, moment) > 0 THEN", "IF false THEN")]),
    "rate lets one more in": ("limits", [
        ("free := floor((ahead - date_part('epoch', next - moment)) / gap + 0.000001);",
         "free := 1 + floor((ahead - date_part('epoch', next - moment)) / gap + 0.000001);")]),
    "pause is not heard": ("limits", [("mine.rests := greatest(mine.rests, told.ended + q.pause);", "")]),
    "POP has no pause": ("limits", [("THEN clock_timestamp() + q.pause ELSE mine.rests END", "THEN mine.rests ELSE mine.rests END")]),
    "max_running_per_group lets one more in": ("groups", [
        ("(least(1, %s - k.leased) - k.ready)", "(least(1, 1 + %s - k.leased) - k.ready)"),
        ("'(%s - k.leased - k.ready)'", "'(1 + %s - k.leased - k.ready)'")]),
    "max_running_per_group = 1 while several run": ("groups", [
        ("IF busy > 0 THEN\n\t\t\tRAISE EXCEPTION USING ERRCODE = '55006',\n\t\t\t\tMESSAGE = format('several jobs",
         "IF false THEN\n\t\t\tRAISE EXCEPTION USING ERRCODE = '55006',\n\t\t\t\tMESSAGE = format('several jobs")]),
    "pause_per_group is not heard": ("groups", [("h.ended + q.pause_per_group)", "''-infinity'')")]),
    "ALTER forgets pauses of groups": ("groups", [
        ("UPDATE %s SET head = NULL, inside = NULL', groups", "UPDATE %s SET head = NULL, inside = NULL, rests = ''-infinity''', groups")]),
    "rate_per_group lets one more in": ("groups", [
        ("/ gap + 0.000001)::int8 - k.ready'", "/ gap + 0.000001)::int8 + 1 - k.ready'")]),
    "fair goes by the order of pushes": ("groups", [
        ("run_at = greatest(t.run_at, instant), position = DEFAULT", "run_at = greatest(t.run_at, instant), position = t.id")]),
    "ALTER of groups wakes nobody": ("groups", TELLS),
    "an end in a group wakes nobody": ("groups", [(FREED + TOLD, FREED + NOT_TOLD), ("@note@\n\tIF " + TOLD, "@note@\n\tIF " + NOT_TOLD)]),
}  # fmt: skip


def spoilt(name):
    """The script that installs the schema with this fault."""
    script = install_script()
    for old, new in FAULTS[name][1]:
        if script.count(old) != 1:
            raise SystemExit("%s: %d times in sql/: %s" % (name, script.count(old), old))
        script = script.replace(old, new)
    return script


def is_found(pg, proxy, name, seconds, steps=300):
    """(seed, what is wrong), or None: nothing is wrong in so many seconds."""
    template = pg.createdb(owner="app")
    with psycopg.connect(pg.dsn(template, "app"), autocommit=True) as conn:
        conn.pgconn.exec_(spoilt(name).encode())
    subjects = list(Limited.subjects)
    until, seed = time.monotonic() + seconds, subjects.index(FAULTS[name][0])
    try:
        while time.monotonic() < until:
            try:
                one_program(pg, proxy, seed, steps, Limited, template, 5)
            except Mismatch as e:
                return seed, str(e)
            seed += len(subjects)
    finally:
        pg.dropdb(template)
    return None


def main():
    p = argparse.ArgumentParser(description="Faults that random programs have to find.")
    p.add_argument("--build", default=os.environ.get("QB_BUILD", "."), help="where qbouncer is")
    p.add_argument("--seconds", type=float, default=120, help="of each")
    p.add_argument("--shown", action="store_true", help="what the programs say")
    p.add_argument("words", nargs="*")
    a = p.parse_args()
    missed = []
    with quiet_proxy(a.build) as (pg, proxy):
        for name in FAULTS:
            if a.words and not any(re.search(w, name) for w in a.words):
                continue
            began = time.monotonic()
            found = is_found(pg, proxy, name, a.seconds)
            if found is None:
                missed.append(name)
            print("%s: %s" % (name, "NOT FOUND" if found is None else "seed %d, %.0f s: %s" % (
                found[0], time.monotonic() - began, found[1] if a.shown else found[1].split("\n")[0])), flush=True)
    sys.exit("%d not found" % len(missed) if missed else 0)


if __name__ == "__main__":
    main()
