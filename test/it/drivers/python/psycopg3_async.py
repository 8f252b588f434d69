"""psycopg 3 with asyncio."""

import asyncio
import contextlib

import psycopg
from psycopg.types.json import Jsonb

from runner import DSN, Dbapi, async_main, next_line, rows_of


# [producer]
async def produce(conn, order):
    async with conn.transaction():
        await conn.execute("INSERT INTO orders VALUES (%s)", (order,))
        await conn.execute("QUEUE PUSH mail %s", (Jsonb({"order": order}),))
# [/producer]


# [worker]
async def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds.
    The connection is in autocommit mode: await psycopg.AsyncConnection.connect(dsn, autocommit=True)."""
    job = await (await conn.execute("QUEUE TAKE mail WAIT '20s'")).fetchone()
    if job is None:
        return False
    _, token, _, _, payload, *_ = job
    try:
        async with conn.transaction():  # the work and DONE commit together, or not at all
            await conn.execute("INSERT INTO sent VALUES (%s)", (payload["order"],))
            await conn.execute("QUEUE DONE %s", (token,))
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            await conn.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
        except psycopg.Error as late:
            if late.sqlstate not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Dbapi):
    def __init__(self):  # pylint: disable=super-init-not-called
        self.in_block = False

    async def connect(self):
        self.conn = await psycopg.AsyncConnection.connect(DSN)
        return self

    async def ended(self):
        if not self.in_block:
            await self.conn.commit()

    def failed(self):
        pass

    async def async_failed(self):
        if not self.in_block and not self.conn.closed:
            with contextlib.suppress(psycopg.Error):  # a connection that is stuck
                await self.conn.rollback()

    async def async_close(self):
        await self.conn.close()

    async def do_exec(self, sql, *params):
        cur = await self.conn.execute(self.sql(sql), params or None)
        await self.ended()
        return {"count": cur.rowcount}

    async def do_query(self, sql, *params, **more):
        cur = await self.conn.execute(self.sql(sql), params or None, **more)
        out = {"columns": [d[0] for d in cur.description], "types": [str(d[1]) for d in cur.description],
               "count": cur.rowcount, "rows": rows_of(await cur.fetchall())}
        await self.ended()
        return out

    async def do_prepare(self, sql, *params):
        return await self.do_query(sql, *params, prepare=True)

    async def do_commit(self):
        self.in_block = False
        await self.conn.commit()
        return {"ok": True}

    async def do_rollback(self):
        self.in_block = False
        await self.conn.rollback()
        return {"ok": True}

    async def do_cursor(self, sql, n):
        async with self.conn.transaction(), self.conn.cursor("c") as cur:
            cur.itersize = n
            await cur.execute(sql)
            rows = rows_of([row async for row in cur])
        await self.ended()
        return {"rows": rows}

    async def do_batch(self, sql, *params):
        async with self.conn.pipeline():
            cursors = [await self.conn.execute(self.sql(sql), (p,)) for p in params]
        await self.ended()
        return {"counts": [c.rowcount for c in cursors]}

    async def do_cancel(self, sql):
        task = asyncio.create_task(self.conn.execute(sql))
        await asyncio.get_running_loop().run_in_executor(None, next_line)
        self.conn.cancel()
        await task

    async def do_timeout(self, sql):
        await asyncio.wait_for(self.conn.execute(sql), 0.3)

    async def do_reconnect(self):
        await self.conn.close()
        self.in_block = False
        await self.connect()
        return {"ok": True}

    async def do_produce(self, n):
        await produce(self.conn, int(n))
        await self.ended()
        return {"ok": True}

    async def do_work(self):
        async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as conn:
            return {"ok": await work(conn)}


async def run():
    await async_main(await Program().connect())


asyncio.run(run())
