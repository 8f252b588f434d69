// pg-boss as its documentation has it, before whatever QB_URL names: prints a line for each thing that works.
import PgBoss from 'pg-boss';

const boss = new PgBoss({ connectionString: process.env.QB_URL, max: 8 });
let wrong = null;
boss.on('error', (e) => { wrong = e; });
await boss.start();
console.log('started');
await boss.createQueue('mail');
await boss.send('mail', { to: 'a' });
const sent = await boss.insert(Array.from({ length: 20 }, (_, i) => ({ name: 'mail', data: { to: 'n' + i } })));
console.log('sent', sent === null || sent === undefined || sent.rowCount !== 0);
const jobs = await boss.fetch('mail', { batchSize: 5 });
await boss.complete('mail', jobs.map((j) => j.id));
console.log('fetched', jobs.length);

let seen = 0;
await new Promise((resolve) => boss.work('mail', { batchSize: 4, pollingIntervalSeconds: 0.5 }, async (batch) => {
  seen += batch.length;
  if (seen === 16) resolve();
}));
console.log('worked', seen);

await boss.createQueue('once', { name: 'once', policy: 'singleton' });
const one = await boss.send('once', {}, { singletonKey: 'k', singletonSeconds: 3600 });
const two = await boss.send('once', {}, { singletonKey: 'k', singletonSeconds: 3600 });
console.log('once', one !== null, two === null);
await boss.createQueue('bad', { name: 'bad', retryLimit: 1 });
await boss.send('bad', { x: 1 });
const [job] = await boss.fetch('bad');
await boss.fail('bad', job.id, { why: 'broken' });
console.log('failed', (await boss.getJobById('bad', job.id)).state);
await boss.schedule('bad', '0 3 * * *', { nightly: true }, { tz: 'Europe/Berlin' });
console.log('schedules', (await boss.getSchedules()).length);
await boss.send('mail', { to: 'moved' }, { priority: 5, retryLimit: 6, startAfter: 3600, singletonKey: 'm' });
await boss.stop({ graceful: true, wait: true });
console.log('stopped', wrong === null ? 'well' : wrong);
