// graphile-worker through its own interface: node graphile-worker.mjs LOAD CLIENTS SECONDS JOBS
// Prints jobs per second.
import pg from "pg";
import { makeWorkerUtils, run, Logger } from "graphile-worker";

const [load, clients, seconds, jobs] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const payload = JSON.parse(process.env.PAYLOAD);
const pgPool = new pg.Pool({ max: Math.min(Math.max(clients, 1) + 5, 100) });
const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ pgPool, logger });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let pushed = 0;
let done = 0;

async function pushUntil(stop) {
	await Promise.all(
		Array.from({ length: clients }, async () => {
			while (!stop()) {
				await utils.addJob("job", payload);
				pushed++;
			}
		}),
	);
}

const worker = () =>
	run({
		pgPool,
		logger,
		concurrency: clients,
		noHandleSignals: true,
		taskList: { job: async () => void done++ },
	});

if (load === "start") {
	await utils.migrate();
} else if (load === "push") {
	const start = Date.now();
	await pushUntil(() => Date.now() - start > seconds * 1000);
	console.log(pushed / ((Date.now() - start) / 1000));
} else if (load === "cycle") {
	const runner = await worker();
	const start = Date.now();
	await pushUntil(() => Date.now() - start > seconds * 1000);
	console.log(Math.min(done, pushed) / ((Date.now() - start) / 1000));
	await runner.stop();
} else {
	await pgPool.query(
		"SELECT count(graphile_worker.add_job('job', $1::json)) FROM generate_series(1, $2::int)",
		[JSON.stringify(payload), jobs],
	);
	done = 0;
	const start = Date.now();
	const runner = await worker();
	while (done < jobs && Date.now() - start < 60000) await sleep(5);
	console.log(done / ((Date.now() - start) / 1000));
	await runner.stop();
}
await utils.release();
await pgPool.end().catch(() => {});
process.exit(0);
