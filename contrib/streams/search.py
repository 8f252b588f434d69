"""A search index that follows a table. The index is no part of the transaction, so an event may come twice; it is told
the whole document with the id of the event as its version, and ignores what is older than what it has (Elasticsearch
and OpenSearch: version_type=external). Ids of articles never change.

    CREATE TABLE articles (id int PRIMARY KEY, title text, body text);
    QUEUE CREATE articles_changed WITH (kind = stream);
    QUEUE TRACK articles IN articles_changed FOR INSERT, UPDATE, DELETE;
    QUEUE SUBSCRIBE search TO articles_changed;
    QB_URL=postgres://app@localhost:6432/app SEARCH_URL=http://localhost:9200/articles python3 search.py
"""

import json
import os
import urllib.request

import psycopg


def lines(events):
    for id, token, queue, attempt, payload, *_ in events:
        about = {"_id": str(payload["key"]["id"]), "version": id, "version_type": "external"}
        if payload["op"] == "delete":
            yield {"delete": about}
        else:
            yield {"index": about}
            yield payload["new"]


with psycopg.connect(os.environ["QB_URL"], autocommit=True) as c:
    while True:
        events = c.execute("QUEUE TAKE articles_changed FOR search LIMIT 500 MIN 100 WITHIN '200 ms' WAIT '1 min'").fetchall()
        if not events:
            continue
        token = events[0][1]
        body = "".join(json.dumps(line) + "\n" for line in lines(events))
        request = urllib.request.Request(os.environ["SEARCH_URL"] + "/_bulk", body.encode(),
                                         {"Content-Type": "application/x-ndjson"})
        try:
            urllib.request.urlopen(request, timeout=20).close()
        except OSError as e:
            c.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
        else:
            c.execute("QUEUE DONE %s", (token,))
