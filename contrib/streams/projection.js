// A table that is made of events, as in projection.py: the events of a delivery and that they are read are one
// transaction, so each counts once, however often this is killed.
const pg = require('pg');

(async () => {
  const c = new pg.Client(process.env.QB_URL);
  await c.connect();
  for (;;) {
    const { rows } = await c.query("QUEUE TAKE orders FOR totals LIMIT 1000 WAIT '1 min'");
    if (rows.length === 0) continue;
    await c.query('BEGIN');
    for (const { payload } of rows) {
      await c.query(`INSERT INTO totals AS t VALUES ($1, 1, $2)
        ON CONFLICT (customer) DO UPDATE SET orders = t.orders + 1, amount = t.amount + excluded.amount`,
      [payload.customer, payload.amount]);
    }
    await c.query('QUEUE DONE $1', [rows[0].token]);
    await c.query('COMMIT');
  }
})().catch(e => { console.error(e); process.exit(1); });
