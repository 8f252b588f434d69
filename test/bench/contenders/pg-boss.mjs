// pg-boss through its own interface: node pg-boss.mjs LOAD CLIENTS SECONDS JOBS
// Prints jobs per second.
import PgBoss from "pg-boss";

const [load, clients, seconds, jobs] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const payload = JSON.parse(process.env.PAYLOAD);
const boss = new PgBoss({
	host: process.env.PGHOST,
	port: Number(process.env.PGPORT),
	user: process.env.PGUSER,
	database: process.env.PGDATABASE,
	max: Math.min(Math.max(clients, 1), 100),
	supervise: false,
	schedule: false,
});
boss.on("error", (error) => {
	console.error(error.message);
	process.exit(1);
});
await boss.start();
await boss.createQueue("jobs");

let count = 0;
const start = Date.now();
const over = () => Date.now() - start > seconds * 1000;
const each = (body) => Promise.all(Array.from({ length: clients }, body));
const rate = () => console.log(count / ((Date.now() - start) / 1000));

async function finish(batch) {
	const got = await boss.fetch("jobs", { batchSize: batch });
	if (got === null || got.length === 0) return 0;
	await boss.complete(
		"jobs",
		got.map((job) => job.id),
	);
	return got.length;
}

if (load === "push") {
	await each(async () => {
		for (; !over(); count++) await boss.send("jobs", payload);
	});
	rate();
} else if (load === "cycle") {
	await each(async () => {
		while (!over()) {
			await boss.send("jobs", payload);
			count += await finish(1);
		}
	});
	rate();
} else if (load === "drain") {
	for (let left = jobs; left > 0; left -= 1000)
		await boss.insert(
			Array.from({ length: Math.min(left, 1000) }, () => ({ name: "jobs", data: payload })),
		);
	const begun = Date.now();
	await each(async () => {
		for (let n; (n = await finish(1)) > 0 && Date.now() - begun < 60000; ) count += n;
	});
	console.log(count / ((Date.now() - begun) / 1000));
}
process.exit(0);
