"""A worker in Node with the driver `pg`. QB_NODE_PATH has its node_modules."""

import os
import shutil
import subprocess

import pytest

from node import node_path

WORKER = """
const pg = require('pg');
(async () => {
  const c = new pg.Client(process.env.QB_URL);
  await c.connect();
  const push = await c.query('QUEUE PUSH mail $1', [{ n: 1 }]);
  console.log('push', push.command, push.rowCount);
  const { rows } = await c.query("QUEUE TAKE mail WAIT '5s'");
  console.log('take', rows.length, JSON.stringify(rows[0].payload), rows[0].attempt);
  const done = await c.query('QUEUE DONE $1', [rows[0].token]);
  console.log('done', done.rowCount);
  const named = await c.query('QUEUE PUSH mail $1, $2 RETURNING ID, JOB', [{ n: 8 }, { n: 9 }]);
  console.log('named', named.rows.every(r => r.job.endsWith('-' + r.id)));
  const tokens = (await c.query('QUEUE TAKE mail LIMIT 2')).rows.map(r => r.token);
  console.log('any', (await c.query('QUEUE DONE ANY($1)', [tokens])).rowCount);
  console.log('partial', JSON.stringify((await c.query('QUEUE DONE ANY($1) PARTIAL', [tokens])).rows.map(r => r.ok)));
  const other = (await c.query('QUEUE PUSH mail $1 RETURNING ID', [{ n: 7 }])).rows[0].id;
  console.log('cancel', (await c.query({ name: 'cancel', text: 'QUEUE CANCEL $1::int8 ON mail', values: [other] })).rowCount);
  try { await c.query('QUEUE RELEASE $1', [rows[0].token]); } catch (e) { console.log('late', e.code); }
  const pushed = new pg.Client(process.env.QB_URL);
  await pushed.connect();
  const waiting = c.query({ name: 'take', text: 'QUEUE TAKE mail WAIT $1', values: ['10s'] });
  await pushed.query('BEGIN');
  await pushed.query("QUEUE PUSH mail '{\\"n\\": 2}'");
  await pushed.query('COMMIT');
  console.log('woken', JSON.stringify((await waiting).rows[0].payload));
  const none = await c.query({ name: 'take', text: 'QUEUE TAKE mail WAIT $1', values: ['50ms'] });
  console.log('none', none.rows.length);
  // a lease that is over and taken again: fenced, also inside a transaction
  await pushed.query("QUEUE PUSH mail '3'");
  const slow = (await c.query("QUEUE TAKE mail LEASE '50ms'")).rows[0];
  const again = (await pushed.query("QUEUE TAKE mail WAIT '10s'")).rows[0];
  console.log('again', slow.id === again.id, again.attempt);
  await c.query('BEGIN');
  try { await c.query('QUEUE DONE $1', [slow.token]); } catch (e) { console.log('fenced', e.code); }
  console.log('end', (await c.query('COMMIT')).command);
  console.log('mine', (await pushed.query('QUEUE DONE $1', [again.token])).rowCount);
  // BEGIN, then the wait: no server is held
  await c.query('BEGIN');
  const inside = c.query("QUEUE TAKE mail WAIT '10s'");
  await pushed.query('QUEUE PUSH mail $1', [JSON.stringify('inside')]);
  const job = (await inside).rows[0];
  await c.query('CREATE TABLE work (a int)');
  await c.query('QUEUE DONE $1', [job.token]);
  await c.query('COMMIT');
  console.log('inside', job.payload);
  await c.end();
  await pushed.end();
})().catch(e => { console.log('failed', e); process.exit(1); });
"""


@pytest.mark.skipif(not shutil.which("node") or not node_path(), reason="node or its driver pg is missing")
def test_node(proxy, db):
    with proxy.wire(db) as c:
        c.rows("QUEUE CREATE mail")
    url = "postgres://app@127.0.0.1:%d/%s" % (proxy.port, db)
    done = subprocess.run(["node", "-e", WORKER], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=40, check=False,
                          env=dict(os.environ, QB_URL=url, NODE_PATH=node_path()))
    assert done.stdout.splitlines() == [
        "push INSERT 1", 'take 1 {"n":1} 1', "done 1", "named true", "any 2",
        "partial [true,true]", "cancel 1", "late QB001", 'woken {"n":2}', "none 0",
        "again true 2", "fenced QB001", "end ROLLBACK", "mine 1", "inside inside"], done.stderr
