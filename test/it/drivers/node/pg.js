// node-postgres: `pg`, its pool and its cursor.
'use strict';
const pg = require('pg');
const Cursor = require('pg-cursor');
const { main, ofPg, ofObjects, to } = require('./runner');

// [producer]
async function produce(client, order) {
  await client.query('BEGIN');
  await client.query('INSERT INTO orders VALUES ($1)', [order]);
  await client.query('QUEUE PUSH mail $1', [{ order }]); // an object becomes JSON
  await client.query('COMMIT');
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds. Without query_timeout, please.
async function work(client) {
  const { rows: [job] } = await client.query("QUEUE TAKE mail WAIT '20s'");
  if (!job) return false;
  try {
    await client.query('BEGIN');
    await client.query('INSERT INTO sent VALUES ($1)', [job.payload.order]);
    await client.query('QUEUE DONE $1', [job.token]); // the work and DONE commit together, or not at all
    await client.query('COMMIT');
  } catch (e) { // whatever it was: nobody else gives the job back
    await client.query('ROLLBACK');
    await client.query('QUEUE FAIL $1 ERROR $2', [job.token, e.message]).catch((late) => {
      if (!/^QB00[12]$/.test(late.code)) throw late; // else it is not our job any more, or cancelled
    });
  }
  return true;
}
// [/worker]

const names = new Map();

main({
  async reconnect() {
    if (this.client) await this.client.end();
    this.client = new pg.Client(to);
    this.client.on('error', () => {});
    await this.client.connect();
    return { ok: true };
  },
  async exec(sql, ...values) {
    return { count: (await this.client.query(sql, values.length ? values : undefined)).rowCount };
  },
  async query(sql, ...values) {
    return ofPg(await this.client.query(sql, values.length ? values : undefined));
  },
  async prepare(sql, ...values) {
    if (!names.has(sql)) names.set(sql, `p${names.size}`);
    return ofPg(await this.client.query({ name: names.get(sql), text: sql, values }));
  },
  begin() { return this.exec('BEGIN'); },
  commit() { return this.exec('COMMIT'); },
  rollback() { return this.exec('ROLLBACK'); },
  async cursor(sql, n) {
    await this.client.query('BEGIN');
    try {
      const cursor = this.client.query(new Cursor(sql));
      const rows = [];
      for (let some = await cursor.read(n); some.length; some = await cursor.read(n)) rows.push(...some);
      await cursor.close();
      await this.client.query('COMMIT');
      return ofObjects(rows);
    } catch (e) {
      await this.client.query('ROLLBACK');
      throw e;
    }
  },
  async pool(n) {
    const pool = new pg.Pool({ ...to, max: 1 });
    for (let i = 0; i < Number(n); i++) {
      const client = await pool.connect();
      await client.query('SELECT 1');
      client.release();
    }
    await pool.end();
    return { ok: true };
  },
  // Older releases know the option of the client, not that of the query.
  async timeout(sql) {
    this.client.connectionParameters.query_timeout = 300;
    try {
      return ofPg(await this.client.query(sql));
    } finally {
      this.client.connectionParameters.query_timeout = 0;
    }
  },
  async produce(n) { await produce(this.client, Number(n)); return { ok: true }; },
  async work() { return { ok: await work(this.client) }; },
  close() { return this.client.end(); },
});
