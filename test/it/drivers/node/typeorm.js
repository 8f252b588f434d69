// TypeORM, over `pg`: a query runner is one connection of its pool.
'use strict';
require('reflect-metadata');
const { DataSource } = require('typeorm');
const { main, ofObjects, to } = require('./runner');

// [producer]
async function produce(source, order) {
  await source.transaction(async (manager) => {
    await manager.query('INSERT INTO orders VALUES ($1)', [order]);
    await manager.query('QUEUE PUSH mail $1', [JSON.stringify({ order })]);
  });
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
async function work(source) {
  const [job] = await source.query("QUEUE TAKE mail WAIT '20s'");
  if (!job) return false;
  try {
    await source.transaction(async (manager) => { // the work and DONE commit together, or not at all
      await manager.query('INSERT INTO sent VALUES ($1)', [job.payload.order]);
      await manager.query('QUEUE DONE $1', [job.token]);
    });
  } catch (e) { // whatever it was: nobody else gives the job back
    await source.query('QUEUE FAIL $1 ERROR $2', [job.token, e.message]).catch((late) => {
      if (!/^QB00[12]$/.test(late.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

main({
  async reconnect() {
    if (this.source) await this.source.destroy();
    this.source = new DataSource({ type: 'postgres', host: to.host, port: to.port, database: to.database,
      username: to.user, password: to.password, poolSize: 1, installExtensions: false });
    await this.source.initialize();
    this.runner = null;
    return { ok: true };
  },
  async run(sql, values) {
    const runner = this.runner || this.source.createQueryRunner();
    try {
      return await runner.query(sql, values, true);
    } finally {
      if (runner !== this.runner) await runner.release();
    }
  },
  async exec(sql, ...values) { return { count: (await this.run(sql, values)).affected }; },
  async query(sql, ...values) { return ofObjects((await this.run(sql, values)).records); },
  async begin() {
    this.runner = this.source.createQueryRunner();
    await this.runner.startTransaction();
    return { ok: true };
  },
  async end(how) {
    const runner = this.runner;
    this.runner = null;
    await runner[how]();
    await runner.release();
    return { ok: true };
  },
  commit() { return this.end('commitTransaction'); },
  rollback() { return this.end('rollbackTransaction'); },
  async pool(n) {
    for (let i = 0; i < Number(n); i++) await this.source.query('SELECT 1');
    return { ok: true };
  },
  async produce(n) { await produce(this.source, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.source) }; },
  close() { return this.source.destroy(); },
});
