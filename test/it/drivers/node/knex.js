// knex, over `pg`, with its pool.
'use strict';
const knex = require('knex');
const { main, ofPg, questions, to } = require('./runner');

// [producer]
async function produce(db, order) {
  await db.transaction(async (tx) => {
    await tx('orders').insert({ a: order });
    await tx.raw('QUEUE PUSH mail ?', [JSON.stringify({ order })]); // bound: a ? inside a literal would be replaced
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(db) {
  const { rows: [job] } = await db.raw("QUEUE TAKE mail WAIT '20s'");
  if (!job) return false;
  try {
    await db.transaction(async (tx) => { // the work and DONE commit together, or not at all
      await tx('sent').insert({ a: job.payload.order });
      await tx.raw('QUEUE DONE ?', [job.token]);
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await db.raw('QUEUE FAIL ? ERROR ?', [job.token, e.message]).catch((late) => {
      if (!/^QB00[12]$/.test(late.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

main({
  async reconnect() {
    if (this.db) await this.db.destroy();
    this.db = knex({ client: 'pg', connection: to, pool: { min: 1, max: 1 }, log: { warn() {}, error() {} } });
    return { ok: true };
  },
  async exec(sql, ...values) { return { count: (await (this.tx || this.db).raw(questions(sql), values)).rowCount }; },
  async query(sql, ...values) { return ofPg(await (this.tx || this.db).raw(questions(sql), values)); },
  async begin() { this.tx = await this.db.transaction(); return { ok: true }; },
  async commit() { const tx = this.tx; this.tx = null; await tx.commit(); return { ok: true }; },
  async rollback() { const tx = this.tx; this.tx = null; await tx.rollback(); return { ok: true }; },
  async pool(n) {
    for (let i = 0; i < Number(n); i++) await this.db.select(this.db.raw('1'));
    return { ok: true };
  },
  async timeout(sql) { return ofPg(await this.db.raw(sql).timeout(300)); },
  async produce(n) { await produce(this.db, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.db) }; },
  close() { return this.db.destroy(); },
});
