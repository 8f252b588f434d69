// Tells somebody else's server of each event, in order, at least once, as in webhook.py.
const pg = require('pg');

const subscription = process.argv[2];
if (!/^[a-z_][a-z0-9_]*$/i.test(subscription)) throw new Error('which subscription?');

(async () => {
  const c = new pg.Client(process.env.QB_URL);
  await c.connect();
  for (;;) {
    const { rows } = await c.query(`QUEUE TAKE orders FOR ${subscription} LIMIT 1 WAIT '1 min'`);
    for (const { id, token, queue, payload } of rows) {
      try {
        const answer = await fetch(process.env.HOOK_URL, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', 'Idempotency-Key': `${queue}-${id}` },
          body: JSON.stringify(payload),
          signal: AbortSignal.timeout(20000),
        });
        if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
        await answer.text();
        await c.query('QUEUE DONE $1', [token]);
      } catch (e) {
        await c.query('QUEUE FAIL $1 ERROR $2', [token, String(e)]);
      }
    }
  }
})().catch(e => { console.error(e); process.exit(1); });
