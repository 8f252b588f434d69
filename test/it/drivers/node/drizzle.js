// Drizzle, over `pg`.
'use strict';
const { drizzle } = require('drizzle-orm/node-postgres');
const { sql } = require('drizzle-orm');
const { Pool } = require('pg');
const { Block, main, ofPg, to } = require('./runner');

// [producer]
async function produce(db, order) {
  await db.transaction(async (tx) => {
    await tx.execute(sql`INSERT INTO orders VALUES (${order})`);
    await tx.execute(sql`QUEUE PUSH mail ${JSON.stringify({ order })}`);
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(db) {
  const { rows: [job] } = await db.execute(sql`QUEUE TAKE mail WAIT '20s'`);
  if (!job) return false;
  try {
    await db.transaction(async (tx) => { // the work and DONE commit together, or not at all
      await tx.execute(sql`INSERT INTO sent VALUES (${job.payload.order})`);
      await tx.execute(sql`QUEUE DONE ${job.token}`);
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await db.execute(sql`QUEUE FAIL ${job.token} ERROR ${String(e.cause || e)}`).catch((late) => {
      if (!/^QB00[12]$/.test((late.cause || late).code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

const block = new Block();

// The text with its parameters as a template would have made it.
function template(text, values) {
  const query = sql.empty();
  text.split(/\$\d+/).forEach((part, i) => {
    if (i > 0) query.append(sql`${values[i - 1]}`);
    query.append(sql.raw(part));
  });
  return query;
}

main({
  async reconnect() {
    if (this.pg) await this.pg.end();
    this.pg = new Pool({ ...to, max: 1 });
    this.pg.on('error', () => {});
    this.db = drizzle(this.pg);
    return { ok: true };
  },
  run(text, values) { return (block.tx || this.db).execute(template(text, values)); },
  async exec(text, ...values) { return { count: (await this.run(text, values)).rowCount }; },
  async query(text, ...values) { return ofPg(await this.run(text, values)); },
  begin() { return block.begin((f) => this.db.transaction(f)); },
  commit() { return block.commit(); },
  rollback() { return block.rollback(); },
  async pool(n) {
    for (let i = 0; i < Number(n); i++) await this.db.execute(sql`SELECT 1`);
    return { ok: true };
  },
  async produce(n) { await produce(this.db, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.db) }; },
  close() { return this.pg.end(); },
});
