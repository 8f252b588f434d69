"""aiopg: psycopg2 with asyncio, autocommit."""

import asyncio
import json

import aiopg
import psycopg2

from runner import DSN, Dbapi, Runner, async_main, rows_of


# [producer]
async def produce(conn, order):
    async with conn.cursor() as cur:
        async with cur.begin():
            await cur.execute("INSERT INTO orders VALUES (%s)", (order,))
            await cur.execute("QUEUE PUSH mail %s", (json.dumps({"order": order}),))
# [/producer]


# [worker]
async def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    async with conn.cursor() as cur:
        await cur.execute("QUEUE TAKE mail WAIT '20s'")  # aiopg's own time-out is 60 s
        job = await cur.fetchone()
        if job is None:
            return False
        token, payload = job[1], job[4]
        try:
            async with cur.begin():  # the work and DONE commit together, or not at all
                await cur.execute("INSERT INTO sent VALUES (%s)", (payload["order"],))
                await cur.execute("QUEUE DONE %s", (token,))
        except Exception as e:  # whatever it was: nobody else gives the job back
            try:
                await cur.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
            except psycopg2.Error as late:
                if late.pgcode not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                    raise
    return True
# [/worker]


class Program(Runner):
    sql = Dbapi.sql
    paramstyle = "%s"

    async def connect(self):
        self.conn = await aiopg.connect(DSN)
        self.block = None
        return self

    async def async_failed(self):
        pass

    async def async_close(self):
        await self.conn.close()

    async def run(self, sql, params, **more):
        cur = await self.conn.cursor(**more)
        await cur.execute(self.sql(sql), params or None)
        return cur

    async def do_exec(self, sql, *params):
        return {"count": (await self.run(sql, params)).rowcount}

    async def do_query(self, sql, *params):
        cur = await self.run(sql, params)
        return {"columns": [d[0] for d in cur.description], "types": [str(d[1]) for d in cur.description],
                "count": cur.rowcount, "rows": rows_of(await cur.fetchall())}

    async def do_begin(self):
        return await self.do_exec("BEGIN")

    async def do_commit(self):
        return await self.do_exec("COMMIT")

    async def do_rollback(self):
        return await self.do_exec("ROLLBACK")

    async def do_pool(self, n):
        async with aiopg.create_pool(DSN, minsize=1, maxsize=1) as pool:
            for _ in range(int(n)):
                async with pool.acquire() as conn, conn.cursor() as cur:
                    await cur.execute("SELECT 1")
                    await cur.fetchall()
        return {"ok": True}

    async def do_timeout(self, sql):
        await self.run(sql, (), timeout=0.3)

    async def do_reconnect(self):
        await self.conn.close()
        await self.connect()
        return {"ok": True}

    async def do_produce(self, n):
        await produce(self.conn, int(n))
        return {"ok": True}

    async def do_work(self):
        return {"ok": await work(self.conn)}


async def run():
    await async_main(await Program().connect())


asyncio.run(run())
