// A search index that follows a table, as in search.py.
const pg = require('pg');

function* lines(events) {
  for (const { id, payload } of events) {
    const about = { _id: String(payload.key.id), version: Number(id), version_type: 'external' };
    if (payload.op === 'delete') {
      yield { delete: about };
    } else {
      yield { index: about };
      yield payload.new;
    }
  }
}

(async () => {
  const c = new pg.Client(process.env.QB_URL);
  await c.connect();
  for (;;) {
    const { rows } = await c.query(
      "QUEUE TAKE articles_changed FOR search LIMIT 500 MIN 100 WITHIN '200 ms' WAIT '1 min'");
    if (rows.length === 0) continue;
    try {
      const answer = await fetch(`${process.env.SEARCH_URL}/_bulk`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/x-ndjson' },
        body: [...lines(rows)].map(line => `${JSON.stringify(line)}\n`).join(''),
        signal: AbortSignal.timeout(20000),
      });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      await answer.text();
      await c.query('QUEUE DONE $1', [rows[0].token]);
    } catch (e) {
      await c.query('QUEUE FAIL $1 ERROR $2', [rows[0].token, String(e)]);
    }
  }
})().catch(e => { console.error(e); process.exit(1); });
