// Kysely, over `pg`.
'use strict';
const { CompiledQuery, Kysely, PostgresDialect, sql } = require('kysely');
const { Pool } = require('pg');
const { Block, main, ofObjects, to } = require('./runner');

// [producer]
async function produce(db, order) {
  await db.transaction().execute(async (tx) => {
    await sql`INSERT INTO orders VALUES (${order})`.execute(tx);
    await sql`QUEUE PUSH mail ${JSON.stringify({ order })}`.execute(tx);
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(db) {
  const { rows: [job] } = await sql`QUEUE TAKE mail WAIT '20s'`.execute(db);
  if (!job) return false;
  try {
    await db.transaction().execute(async (tx) => { // the work and DONE commit together, or not at all
      await sql`INSERT INTO sent VALUES (${job.payload.order})`.execute(tx);
      await sql`QUEUE DONE ${job.token}`.execute(tx);
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await sql`QUEUE FAIL ${job.token} ERROR ${e.message}`.execute(db).catch((late) => {
      if (!/^QB00[12]$/.test(late.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

const block = new Block();

main({
  async reconnect() {
    if (this.db) await this.db.destroy();
    const pool = new Pool({ ...to, max: 1 });
    pool.on('error', () => {});
    this.db = new Kysely({ dialect: new PostgresDialect({ pool }) });
    return { ok: true };
  },
  run(text, values) { return (block.tx || this.db).executeQuery(CompiledQuery.raw(text, values)); },
  async exec(text, ...values) {
    const { numAffectedRows } = await this.run(text, values);
    return { count: numAffectedRows === undefined ? null : Number(numAffectedRows) };
  },
  async query(text, ...values) { return ofObjects((await this.run(text, values)).rows); },
  begin() { return block.begin((f) => this.db.transaction().execute(f)); },
  commit() { return block.commit(); },
  rollback() { return block.rollback(); },
  async pool(n) {
    for (let i = 0; i < Number(n); i++) await sql`SELECT 1`.execute(this.db);
    return { ok: true };
  },
  async produce(n) { await produce(this.db, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.db) }; },
  close() { return this.db.destroy(); },
});
