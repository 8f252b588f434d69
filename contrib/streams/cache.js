// A cache in this process that forgets what was changed, as in cache.py.
const pg = require('pg');
const readline = require('readline');

const name = `cache_${process.pid}`;
const cache = new Map();
let reads = 0;
let ending = false;

async function listen(c) {
  for (;;) {
    let rows = [];
    try {
      ({ rows } = await c.query(`QUEUE TAKE changes FOR ${name} WAIT '1 min'`));
    } catch (e) {
      if (e.code !== 'QB005') throw e; // what is in the cache may be old
      await c.query(`QUEUE SEEK ${name} ON changes TO NOW`);
      cache.clear();
    }
    reads++;
    for (const { payload } of rows) {
      if (payload.op === 'truncate') cache.clear();
      // they differ if the name was changed
      for (const row of [payload.key, payload.new]) if (row) cache.delete(row.name);
    }
    if (rows.length > 0) await c.query('QUEUE DONE $1', [rows[0].token]);
  }
}

async function get(c, key) {
  if (cache.has(key)) return cache.get(key);
  const before = reads;
  const { rows } = await c.query('SELECT value FROM settings WHERE name = $1', [key]);
  const value = rows.length > 0 ? rows[0].value : null;
  if (reads === before) cache.set(key, value); // else it may have changed since it was read
  return value;
}

(async () => {
  const listener = new pg.Client(process.env.QB_URL);
  const c = new pg.Client(process.env.QB_URL);
  await listener.connect();
  await c.connect();
  await listener.query(`QUEUE SUBSCRIBE ${name} TO changes FROM NOW`);
  listen(listener).catch(e => {
    if (ending) return;
    console.error(e);
    process.exit(1);
  });
  for await (const line of readline.createInterface({ input: process.stdin })) console.log(await get(c, line.trim()));
  ending = true;
  await c.query(`QUEUE UNSUBSCRIBE ${name} FROM changes`);
  process.exit(0);
})();
