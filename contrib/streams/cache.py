"""A cache in this process that forgets what was changed, whoever changed it. Each process has a subscription of its own,
which begins now, before anything is in the cache.

    CREATE TABLE settings (name text PRIMARY KEY, value text NOT NULL);
    QUEUE CREATE changes WITH (kind = stream, retain_max = '1 hour');
    QUEUE TRACK settings IN changes;
    QB_URL=postgres://app@localhost:6432/app python3 cache.py

Here it answers names from the standard input; in an application, get() is called. Who is behind by more than retain_max
is told so by QB005, and forgets everything.
"""

import os
import sys
import threading

import psycopg

NAME = "cache_%d" % os.getpid()
cache = {}
reads = 0
ending = False
lock = threading.Lock()


def listen(c):
    global reads
    while True:
        try:
            events = c.execute("QUEUE TAKE changes FOR %s WAIT '1 min'" % NAME).fetchall()
        except psycopg.Error as e:
            if ending:
                return
            if e.sqlstate != "QB005":
                os._exit(1)  # what is in the cache may be old
            c.execute("QUEUE SEEK %s ON changes TO NOW" % NAME)
            with lock:
                reads += 1
                cache.clear()
            continue
        with lock:
            reads += 1
            for id, token, queue, attempt, payload, *_ in events:
                if payload["op"] == "truncate":
                    cache.clear()
                for row in payload["key"], payload["new"]:  # they differ if the name was changed
                    if row:
                        cache.pop(row["name"], None)
        if events:
            c.execute("QUEUE DONE %s", (token,))


def get(c, name):
    with lock:
        if name in cache:
            return cache[name]
        before = reads
    row = c.execute("SELECT value FROM settings WHERE name = %s", (name,)).fetchone()
    with lock:
        if reads == before:  # else it may have changed since it was read
            cache[name] = row and row[0]
    return row and row[0]


listener = psycopg.connect(os.environ["QB_URL"], autocommit=True)
listener.execute("QUEUE SUBSCRIBE %s TO changes FROM NOW" % NAME)
threading.Thread(target=listen, args=(listener,), daemon=True).start()
with psycopg.connect(os.environ["QB_URL"], autocommit=True) as c:
    for line in sys.stdin:
        print(get(c, line.strip()), flush=True)
    ending = True
    c.execute("QUEUE UNSUBSCRIBE %s FROM changes" % NAME)
