"""A table that is made of events: the sum of each customer's orders. The events of a delivery and that they are read are
one transaction, so each counts once, however often this is killed.

    CREATE TABLE totals (customer text PRIMARY KEY, orders bigint NOT NULL, amount numeric NOT NULL);
    QUEUE CREATE orders WITH (kind = stream);
    QUEUE SUBSCRIBE totals TO orders FROM BEGINNING;
    QB_URL=postgres://app@localhost:6432/app python3 projection.py

To make the table anew: TRUNCATE totals and QUEUE SEEK totals ON orders TO BEGINNING in one transaction.
"""

import os

import psycopg

with psycopg.connect(os.environ["QB_URL"], autocommit=True) as c:
    while True:
        events = c.execute("QUEUE TAKE orders FOR totals LIMIT 1000 WAIT '1 min'").fetchall()
        if not events:
            continue
        with c.transaction():
            for id, token, queue, attempt, payload, *_ in events:
                c.execute("""INSERT INTO totals AS t VALUES (%s, 1, %s)
                    ON CONFLICT (customer) DO UPDATE SET orders = t.orders + 1, amount = t.amount + excluded.amount""",
                          (payload["customer"], payload["amount"]))
            c.execute("QUEUE DONE %s", (token,))
