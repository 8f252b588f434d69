// Sequelize, over `pg`.
'use strict';
const { Sequelize, QueryTypes } = require('sequelize');
const { main, ofObjects, to } = require('./runner');

// [producer]
async function produce(db, order) {
  await db.transaction(async (transaction) => {
    await db.query('INSERT INTO orders VALUES ($1)', { bind: [order], transaction });
    await db.query('QUEUE PUSH mail $1', { bind: [JSON.stringify({ order })], transaction });
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(db) {
  const [[job]] = await db.query("QUEUE TAKE mail WAIT '20s'");
  if (!job) return false;
  try {
    await db.transaction(async (transaction) => { // the work and DONE commit together, or not at all
      await db.query('INSERT INTO sent VALUES ($1)', { bind: [job.payload.order], transaction });
      await db.query('QUEUE DONE $1', { bind: [job.token], transaction });
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await db.query('QUEUE FAIL $1 ERROR $2', { bind: [job.token, e.message] }).catch((late) => {
      if (!/^QB00[12]$/.test(late.original.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

main({
  async reconnect() {
    if (this.db) await this.db.close();
    this.db = new Sequelize(to.database, to.user, to.password, {
      host: to.host, port: to.port, dialect: 'postgres', logging: false, pool: { max: 1, min: 0 } });
    return { ok: true };
  },
  run(sql, bind) { return this.db.query(sql, { transaction: this.tx, ...(bind.length && { bind }) }); },
  async exec(sql, ...bind) {
    const [, meta] = await this.run(sql, bind);
    return { count: typeof meta === 'number' ? meta : meta.rowCount };
  },
  async query(sql, ...bind) { return ofObjects((await this.run(sql, bind))[0]); },
  async begin() { this.tx = await this.db.transaction(); return { ok: true }; },
  async commit() { const tx = this.tx; this.tx = null; await tx.commit(); return { ok: true }; },
  async rollback() { const tx = this.tx; this.tx = null; await tx.rollback(); return { ok: true }; },
  async pool(n) {
    for (let i = 0; i < Number(n); i++) await this.db.query('SELECT 1', { type: QueryTypes.SELECT });
    return { ok: true };
  },
  async ping() { await this.db.authenticate(); return { ok: true }; },
  async produce(n) { await produce(this.db, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.db) }; },
  close() { return this.db.close(); },
});
