// graphile-worker as its documentation has it, before whatever QB_URL names: prints a line for each thing that works.
import pg from 'pg';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';

const pgPool = new pg.Pool({ connectionString: process.env.QB_URL, max: 8 });
pgPool.on('error', () => {});
const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ pgPool, logger });
await utils.migrate();
console.log('migrated');

const seen = [];
const ends = new Map();
const end = (name) => new Promise((resolve) => ends.set(name, resolve));
const runner = await run({
  pgPool, logger, concurrency: 4, pollInterval: 3600000, noHandleSignals: true, // what wakes it is LISTEN alone
  taskList: {
    mail: async (payload, helpers) => {
      if (payload.fails && helpers.job.attempts === 1) throw new Error('the first time');
      await helpers.withPgClient((c) => c.query('INSERT INTO sent VALUES ($1)', [payload.to]));
      seen.push(payload.to);
      ends.get(payload.to)?.();
    },
  },
});
await pgPool.query('CREATE TABLE sent (who text)');

// pushed in a transaction of the application, by SQL and by the library
const listened = end('woken');
const client = await pgPool.connect();
await client.query('BEGIN');
await client.query("SELECT graphile_worker.add_job('mail', $1::json)", [{ to: 'woken' }]);
await client.query('COMMIT');
client.release();
await listened;
console.log('woken by LISTEN');

const many = Promise.all(Array.from({ length: 20 }, (_, i) => end('n' + i)));
await Promise.all(Array.from({ length: 20 }, (_, i) => utils.addJob('mail', { to: 'n' + i })));
await many;
console.log('many', new Set(seen).size, (await pgPool.query('SELECT count(*)::int AS n FROM sent')).rows[0].n);

const undone = await pgPool.connect();
await undone.query('BEGIN');
await undone.query("SELECT graphile_worker.add_job('mail', $1::json)", [{ to: 'never' }]);
await undone.query('ROLLBACK');
undone.release();

await utils.addJob('mail', { to: 'key' }, { jobKey: 'k', runAt: new Date(Date.now() + 3600000) });
const keyed = end('key');
await utils.addJob('mail', { to: 'key' }, { jobKey: 'k', runAt: new Date() });
await keyed;
console.log('job key');

const { rows: [failed] } = await pgPool.query("SELECT id FROM graphile_worker.add_job('mail', $1::json, max_attempts => 5)",
  [{ to: 'again', fails: true }]);
const again = end('again');
const nudged = end('nudge');
for (;;) {
  const { rows: [job] } = await pgPool.query('SELECT attempts, locked_at FROM graphile_worker.jobs WHERE id = $1', [failed.id]);
  if (job.attempts === 1 && job.locked_at === null) break;
}
await utils.rescheduleJobs([failed.id], { runAt: new Date() });
await utils.addJob('mail', { to: 'nudge' }); // rescheduling tells nobody
await Promise.all([again, nudged]);
console.log('tried again');
console.log('never', seen.includes('never'));
await runner.stop();
await utils.addJob('mail', { to: 'moved' },
  { jobKey: 'm', priority: -5, maxAttempts: 7, queueName: 'line', runAt: new Date(Date.now() + 3600000) });
await utils.addJob('print', { to: 'stays' });
await utils.release();
await pgPool.end();
console.log('stopped');
