"""asyncpg: everything prepared, everything binary."""

import asyncio
import json

import asyncpg

from runner import DATABASE, HOST, PASSWORD, PORT, USER, Runner, async_main, next_line, rows_of

TO = {"host": HOST, "port": PORT, "database": DATABASE, "user": USER, "password": PASSWORD}


# [producer]
async def produce(conn, order):
    async with conn.transaction():
        await conn.execute("INSERT INTO orders VALUES ($1)", order)
        await conn.execute("QUEUE PUSH mail $1", json.dumps({"order": order}))
# [/producer]


# [worker]
async def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    job = await conn.fetchrow("QUEUE TAKE mail WAIT '20s'")
    if job is None:
        return False
    try:
        async with conn.transaction():  # the work and DONE commit together, or not at all
            await conn.execute("INSERT INTO sent VALUES ($1)", json.loads(job["payload"])["order"])
            await conn.execute("QUEUE DONE $1", job["token"])
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            await conn.execute("QUEUE FAIL $1 ERROR $2", job["token"], str(e))
        except asyncpg.PostgresError as late:
            if late.sqlstate not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Runner):
    async def connect(self):
        self.conn = await asyncpg.connect(**TO)
        self.block = None
        return self

    async def async_failed(self):
        pass

    async def async_close(self):
        await self.conn.close()

    async def do_exec(self, sql, *params):
        return {"tag": await self.conn.execute(sql, *params)}

    async def do_query(self, sql, *params):
        got = await self.conn.prepare(sql)
        rows = await got.fetch(*params)
        columns = got.get_attributes()
        return {"columns": [c.name for c in columns], "types": [str(c.type.oid) for c in columns],
                "rows": rows_of(rows), "tag": got.get_statusmsg()}

    async def do_prepare(self, sql, *params):
        return {"rows": rows_of(await self.conn.fetch(sql, *params))}

    async def do_first(self, sql, *params):
        row = await self.conn.fetchrow(sql, *params)
        return {"rows": rows_of([row] if row else [])}

    async def do_begin(self):
        self.block = self.conn.transaction()
        await self.block.start()
        return {"ok": True}

    async def do_commit(self):
        await self.block.commit()
        return {"ok": True}

    async def do_rollback(self):
        await self.block.rollback()
        return {"ok": True}

    async def do_cursor(self, sql, n):
        async with self.conn.transaction():
            return {"rows": rows_of([row async for row in self.conn.cursor(sql, prefetch=n)])}

    async def do_batch(self, sql, *params):
        await self.conn.executemany(sql, [(p,) for p in params])
        return {"ok": True}

    async def do_pool(self, n):
        async with asyncpg.create_pool(min_size=1, max_size=1, **TO) as pool:
            for _ in range(int(n)):
                async with pool.acquire() as conn:
                    await conn.fetchval("SELECT 1")
        return {"ok": True}

    async def do_cancel(self, sql):
        task = asyncio.create_task(self.conn.fetch(sql))
        await asyncio.get_running_loop().run_in_executor(None, next_line)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return {"error": "cancelled", "class": "CancelledError", "message": ""}
        return {"ok": True}

    async def do_timeout(self, sql):
        await self.conn.fetch(sql, timeout=0.3)

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
