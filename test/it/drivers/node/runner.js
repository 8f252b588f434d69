// What the Node programs of the suite share: commands in, answers out. ../README.md has the commands.
'use strict';
const readline = require('readline');

const env = process.env;
exports.to = { host: env.QB_HOST, port: Number(env.QB_PORT), database: env.QB_DB, user: env.QB_USER, password: env.QB_PASSWORD };

class Unsupported extends Error {}
exports.Unsupported = Unsupported;

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const nextLine = async () => (await lines.next()).value;
exports.nextLine = nextLine;

function value(field) {
  const text = field.slice(2);
  return { i: () => Number(text), s: () => text, n: () => null }[field[0]]();
}

function text(v) {
  if (v === null || v === undefined) return null;
  if (v instanceof Date) return v.toISOString();
  if (Buffer.isBuffer(v)) return v.toString('hex');
  return typeof v === 'object' ? JSON.stringify(v) : String(v);
}

// Of a result of `pg`, rows being objects.
exports.ofPg = (r) => ({
  rows: r.rows.map((row) => r.fields.map((f) => text(row[f.name]))),
  columns: r.fields.map((f) => f.name), types: r.fields.map((f) => String(f.dataTypeID)), count: r.rowCount,
});
exports.ofObjects = (rows) => ({
  rows: rows.map((row) => Object.values(row).map(text)), ...(rows.length && { columns: Object.keys(rows[0]) }),
});

// $1 becomes ?
exports.questions = (sql) => sql.replace(/\$\d+/g, '?');

// A transaction of drivers that run a function in it: begin() gives it, end() ends the function.
exports.Block = class {
  begin(run) {
    return new Promise((resolve, reject) => {
      this.ended = run((tx) => {
        this.tx = tx;
        resolve({ ok: true });
        return new Promise((done, undo) => { this.done = done; this.undo = undo; });
      });
      this.ended.catch(reject);
    });
  }

  async commit() {
    this.tx = null;
    this.done();
    await this.ended;
    return { ok: true };
  }

  async rollback() {
    this.tx = null;
    const why = new Error('rollback');
    this.undo(why);
    await this.ended.catch((e) => { if (e !== why && e.cause !== why) throw e; });
    return { ok: true };
  }
};

async function answer(program, words) {
  const method = program[words[0]];
  if (!method) return { skip: words[0] };
  try {
    return await method.apply(program, words.slice(1, 2).concat(words.slice(2).map(value)));
  } catch (e) {
    const first = [e, e.cause, e.original, e.driverError].find((x) => x && typeof x.code === 'string') || e;
    return { error: first.code || (/timeout/i.test(first.name + first.message) ? 'timeout' : null), class: e.name, message: String(e.message).split('\n')[0] };
  }
}

exports.main = async (program) => {
  await program.reconnect();
  for (let line = await nextLine(); line !== undefined; line = await nextLine()) {
    process.stdout.write(JSON.stringify(await answer(program, line.split('\t'))) + '\n');
  }
  await program.close();
};
