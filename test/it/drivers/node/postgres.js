// porsager's `postgres`: prepares everything, cancels on demand.
'use strict';
const postgres = require('postgres');
const { Block, main, nextLine, ofObjects, to } = require('./runner');

// [producer]
async function produce(sql, order) {
  await sql.begin(async (tx) => {
    await tx`INSERT INTO orders VALUES (${order})`;
    await tx`QUEUE PUSH mail ${JSON.stringify({ order })}`;
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(sql) {
  const [job] = await sql`QUEUE TAKE mail WAIT '20s'`;
  if (!job) return false;
  try {
    await sql.begin(async (tx) => { // the work and DONE commit together, or not at all
      await tx`INSERT INTO sent VALUES (${job.payload.order})`;
      await tx`QUEUE DONE ${job.token}`;
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await sql`QUEUE FAIL ${job.token} ERROR ${e.message}`.catch((late) => {
      if (!/^QB00[12]$/.test(late.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

const block = new Block();

main({
  async reconnect() {
    if (this.sql) await this.sql.end();
    this.sql = postgres({ ...to, max: 1, fetch_types: false, max_lifetime: null, onnotice() {} });
    return { ok: true };
  },
  on() { return block.tx || this.sql; },
  async exec(text, ...values) { return { count: (await this.on().unsafe(text, values)).count }; },
  result(r) {
    return { ...ofObjects([...r]), columns: r.columns.map((c) => c.name), types: r.columns.map((c) => String(c.type)), count: r.count };
  },
  async query(text, ...values) { return this.result(await this.on().unsafe(text, values)); },
  async prepare(text, ...values) { return this.result(await this.on().unsafe(text, values, { prepare: true })); },
  async stream(text) {
    const rows = [];
    await this.on().unsafe(text).forEach((row) => { rows.push(row); });
    return ofObjects(rows);
  },
  async cursor(text, n) {
    const rows = [];
    for await (const some of this.on().unsafe(text, [], { prepare: true }).cursor(n)) rows.push(...some);
    return ofObjects(rows);
  },
  begin() { return block.begin((f) => this.sql.begin(f)); },
  commit() { return block.commit(); },
  rollback() { return block.rollback(); },
  async batch(text, ...values) {
    await this.sql.begin((tx) => values.map((v) => tx.unsafe(text, [v]))); // pipelined
    return { ok: true };
  },
  async pool(n) {
    const sql = postgres({ ...to, max: 1, fetch_types: false });
    for (let i = 0; i < Number(n); i++) await sql`SELECT 1`;
    await sql.end();
    return { ok: true };
  },
  async cancel(text) {
    const query = this.on().unsafe(text);
    const running = query.execute();
    await nextLine();
    query.cancel();
    return { rows: [...await running] };
  },
  async produce(n) { await produce(this.sql, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.sql) }; },
  close() { return this.sql.end(); },
});
