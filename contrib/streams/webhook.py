"""Tells somebody else's server of each event, in order, at least once. It gets the stream's name and the event's id as a
key by which it can tell what it has had. What it refuses holds up what comes after it, and is tried again: after 1 s, 2
s, 4 s ... up to a minute. Each receiver has a subscription, so none waits for another.

    QUEUE CREATE orders WITH (kind = stream, retain = '7 days');
    QUEUE SUBSCRIBE shop TO orders;
    QB_URL=postgres://app@localhost:6432/app HOOK_URL=https://shop.example/events python3 webhook.py shop
"""

import json
import os
import sys
import urllib.request

import psycopg

subscription = sys.argv[1]
assert subscription.isidentifier()
with psycopg.connect(os.environ["QB_URL"], autocommit=True) as c:
    while True:
        for id, token, queue, attempt, payload, *_ in c.execute(
                "QUEUE TAKE orders FOR %s LIMIT 1 WAIT '1 min'" % subscription).fetchall():
            request = urllib.request.Request(os.environ["HOOK_URL"], json.dumps(payload).encode(), {
                "Content-Type": "application/json", "Idempotency-Key": "%s-%d" % (queue, id)})
            try:
                urllib.request.urlopen(request, timeout=20).close()
            except OSError as e:
                c.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
            else:
                c.execute("QUEUE DONE %s", (token,))
