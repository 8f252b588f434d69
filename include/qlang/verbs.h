/*
 * THE verb table. One row per verb of the QUEUE language; grammar, error hints, QUEUE HELP, the SQL
 * text, result columns, command tags, the fuzzer's dictionary and the tests all come from the rows.
 *
 * A new verb is one row here (and a filler in the engine when it is AUTONOMOUS or LOCAL). A new
 * clause is one ARG in a row, and one name in enum qarg_id (verb.h) when no other verb has it.
 *
 * The usage texts are ASCII because they travel in error hints, whatever the client's encoding.
 *
 * VERB(id, name, flags, tag kind, tag text, columns, arguments, SQL text, usage, help)
 * ARG(id, name in the SQL text, keyword, kind, need, alternative)
 */
/* clang-format off */
#define QUEUE_VERBS(VERB, ARG) \
	VERB(CREATE, "CREATE", QVERB_DEFINITION | QVERB_NUMBERS | QVERB_BEGINS, FIXED, "CREATE TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(IF_NOT_EXISTS, "exists", "IF NOT EXISTS", FLAG, MAY, 0) \
		ARG(WITH, "with", "WITH", OPTIONS, MAY, 0), \
		"SELECT queue.create({queue}, {exists}, {with})", \
		"QUEUE CREATE [IF NOT EXISTS] q [WITH (option = value, ...)]", \
		"Create a queue. Options: lease ('5 min'), max_attempts (25), retry ('exponential 10s 1h [x3]' |" \
		" 'arithmetic 1min 2min [1h]' | 'linear 1min [1h]' | 'fixed 1min' | 'list 1s, 1min, 1h' | 'none')," \
		" on_change (retry | now), on_disconnect (auto | release | keep)," \
		" retain_done ('0'), retain_dead ('30 days'), durability (sync | async), payload (jsonb |" \
		" text | bytea), expires (an interval), on_expire (drop | dead), history (10), max_run (an interval)," \
		" max_length (a number), overflow (error | drop_oldest), max_per_transaction (a number), dead_queue (a queue)," \
		" max_running (a number), rate ('5/s' | '100/min burst 20'), pause (an interval), hours ('22:00-06:00 Europe/Berlin')," \
		" max_running_per_group (1: in order | a number | none), rate_per_group, pause_per_group, fair (group), batches (true | false), single_consumer (true | false), unlogged (true | false)," \
		" handler (a function, called with each payload), handler_batch (1), run (sql: payloads are SQL), timeout (an interval)," \
		" session (clean | keep), session_jobs (a number), session_time (an interval)." \
		" kind = stream: a log that subscriptions read, see SUBSCRIBE; it has none of the others, but payload, retain (for ever | an" \
		" interval), retain_max (an interval | a size).") \
	VERB(DROP, "DROP", QVERB_DEFINITION | QVERB_NUMBERS | QVERB_BEGINS, FIXED, "DROP TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(IF_EXISTS, "exists", "IF EXISTS", FLAG, MAY, 0), \
		"SELECT queue.drop({queue}, {exists}, false)", \
		"QUEUE DROP [IF EXISTS] q", \
		"Drop a queue with all its jobs.") \
	VERB(CREATE_TOPIC, "CREATE TOPIC", QVERB_DEFINITION, FIXED, "CREATE TOPIC", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(IF_NOT_EXISTS, "exists", "IF NOT EXISTS", FLAG, MAY, 0), \
		"SELECT queue.create_topic({name}, {exists})", \
		"QUEUE CREATE TOPIC [IF NOT EXISTS] topic", \
		"Create a topic: what is published to it goes to each queue and stream that is bound to it.") \
	VERB(DROP_TOPIC, "DROP TOPIC", QVERB_DEFINITION, FIXED, "DROP TOPIC", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(IF_EXISTS, "exists", "IF EXISTS", FLAG, MAY, 0), \
		"SELECT queue.drop_topic({name}, {exists})", \
		"QUEUE DROP TOPIC [IF EXISTS] topic", \
		"Drop a topic with its bindings. The queues stay.") \
	VERB(ALTER, "ALTER", QVERB_DEFINITION | QVERB_WAKES | QVERB_BEGINS, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(WHOSE, "reader", "FOR", STATE, MAY, 0) \
		ARG(SET, "set", "SET", OPTIONS, MUST, 1) \
		ARG(RESET, "reset", "RESET", NAMES, MUST, 1), \
		"SELECT queue.alter{whose}({queue}{read}, {set}, {reset})", \
		"QUEUE ALTER q {SET (option = value, ...) | RESET (option, ...)}\n" \
		"QUEUE ALTER stream FOR subscription {SET (option = value, ...) | RESET (option, ...)}", \
		"Change the options of a queue; QUEUE HELP CREATE names them. FOR: those of a subscription, see SUBSCRIBE;" \
		" another parallel counts for what is pushed from now on, and begins when what came before is done.") \
	VERB(ALTER_JOB, "ALTER JOB", QVERB_WAKES, ROWS, "UPDATE", NONE, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(SET, "set", "SET", OPTIONS, MUST, 0), \
		"SELECT queue FROM queue._alter_job({job}, {set}, false{named}) AS queue", \
		"QUEUE ALTER JOB {job [, job ...] [ON q] | KEY text ON q} SET (name = value, ...)", \
		"Change jobs that wait, retries too: priority, at ('now', 'infinity', a time), payload, headers, expires, attempts.") \
	VERB(PAUSE, "PAUSE", QVERB_DEFINITION, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 9) \
		ARG(SCHEDULE, "schedule", "SCHEDULE", STATE, MUST, 9) \
		ARG(TAKES, "takes", "TAKE", FLAG, MAY, 1) \
		ARG(PUSHES, "pushes", "PUSH", FLAG, MAY, 1), \
		"SELECT queue.pause({queue}, {schedule}, {takes}, {pushes})", \
		"QUEUE PAUSE {q [TAKE | PUSH] | SCHEDULE name}", \
		"Give no more jobs of a queue to anybody, or take no more pushes; push no more jobs of a schedule.") \
	VERB(RESUME, "RESUME", QVERB_DEFINITION | QVERB_WAKES, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 9) \
		ARG(SCHEDULE, "schedule", "SCHEDULE", STATE, MUST, 9) \
		ARG(TAKES, "takes", "TAKE", FLAG, MAY, 1) \
		ARG(PUSHES, "pushes", "PUSH", FLAG, MAY, 1), \
		"SELECT queue.resume({queue}, false, {schedule}, {takes}, {pushes})", \
		"QUEUE RESUME {q [TAKE | PUSH] | SCHEDULE name}", \
		"End the pause of a queue, or of a schedule: what was due meanwhile is left out.") \
	VERB(GRANT, "GRANT", QVERB_DEFINITION, FIXED, "GRANT", NONE, \
		ARG(RIGHT, "rights", NULL, WORDS, MUST, 0) \
		ARG(TOPIC, "topic", "ON TOPIC", STATE, MUST, 9) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 9) \
		ARG(ROLE, "roles", "TO", WORDS, MUST, 0), \
		"SELECT queue.grant{of_topic}, {rights}, {roles})", \
		"QUEUE GRANT {PUSH | TAKE | AWAIT | SUBSCRIBE | ALL} [, ...] ON q TO role [, ...]\n" \
		"QUEUE GRANT {PUBLISH | BIND | ALL} [, ...] ON TOPIC topic TO role [, ...]", \
		"Let roles push to a queue, take from it, or await its jobs; push to a stream, or subscribe to it.") \
	VERB(REVOKE, "REVOKE", QVERB_DEFINITION, FIXED, "REVOKE", NONE, \
		ARG(RIGHT, "rights", NULL, WORDS, MUST, 0) \
		ARG(TOPIC, "topic", "ON TOPIC", STATE, MUST, 9) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 9) \
		ARG(ROLE, "roles", "FROM", WORDS, MUST, 0), \
		"SELECT queue.revoke{of_topic}, {rights}, {roles})", \
		"QUEUE REVOKE {PUSH | TAKE | AWAIT | SUBSCRIBE | ALL} [, ...] ON q FROM role [, ...]\n" \
		"QUEUE REVOKE {PUBLISH | BIND | ALL} [, ...] ON TOPIC topic FROM role [, ...]", \
		"Take these rights away.") \
	VERB(LIST, "LIST", 0, ROWS, "SELECT", LIST, , \
		"SELECT * FROM queue.list()", \
		"QUEUE LIST", \
		"Show all queues and their options.") \
	VERB(STATS, "STATS", 0, ROWS, "SELECT", STATS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MAY, 0) \
		ARG(WHOSE, "reader", "FOR", STATE, MAY, 0) \
		ARG(BY, "by", "BY", STATE, MAY, 0) \
		ARG(LAST, "last", "LAST", INT, MAY, 0), \
		"SELECT * FROM queue.stats({queue})", \
		"QUEUE STATS [q]\n" \
		"QUEUE STATS q BY {MINUTE | HOUR | DAY} [LAST n]\n" \
		"QUEUE STATS stream FOR subscription BY {MINUTE | HOUR | DAY} [LAST n]", \
		"Count the jobs of one queue, or of each queue, by state. BY: what happened in the last minutes, hours or days," \
		" and how long jobs waited and ran. FOR: what a subscription was given, and what became of it.") \
	VERB(PUSH, "PUSH", QVERB_WAKES, ROWS, "INSERT 0", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(PAYLOAD, "payload", NULL, PAYLOADS, MUST, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(KEEP_FOR, "keep_for", "FOR", INTERVAL, MAY, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(NEWER, "newer", "IF NEWER", TIMESTAMP, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(BATCH, "batch", "BATCH", TEXT, MAY, 0) \
		ARG(AFTER, "after", "AFTER", WORDS, MAY, 0) \
		ARG(RETURNING, "returning", "RETURNING", RETURNING, MAY, 0), \
		"SELECT {returned} FROM queue._push{jobs}({queue}, {payload}, {priority}, {delay}, {at}," \
		" {headers}, false, {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}{stated}{batched}{once}) AS p", \
		"QUEUE PUSH q payload [, payload ...] [PRIORITY n] [DELAY interval | AT timestamptz]\n" \
		"    [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n] [GROUP text] [BATCH text]\n" \
		"    [AFTER job [, job ...]]\n" \
		"    [KEY text [FOR interval] [ON DUPLICATE {IGNORE | REPLACE [IF NEWER timestamptz] | RERUN | ERROR}]]\n" \
		"    [RETURNING {ID | JOB} [, ...]]\n" \
		"QUEUE PUSH q [(payload, column ...)] [ON DUPLICATE ...]\n" \
		"    {{SELECT | VALUES | TABLE | WITH} ... [RETURNING ...] | FROM STDIN [options]}", \
		"Add jobs to a queue, in the current transaction. A value may also be an expression in parentheses: AT (now() + interval '1 h').") \
	VERB(PUBLISH, "PUBLISH", QVERB_WAKES, ROWS, "INSERT 0", NONE, \
		ARG(TOPIC, "topic", NULL, STATE, MUST, 0) \
		ARG(PAYLOAD, "payload", NULL, PAYLOADS, MUST, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(KEEP_FOR, "keep_for", "FOR", INTERVAL, MAY, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(BATCH, "batch", "BATCH", TEXT, MAY, 0) \
		ARG(MANDATORY, "mandatory", "MANDATORY", FLAG, MAY, 0) \
		ARG(ROUTED, "routed", "RETURNING", ROUTED, MAY, 0), \
		"SELECT queue{routed} FROM queue._publish({topic}, {payload}, {priority}, {delay}, {at}, {headers}, false," \
		" {mandatory}, {expires}, {attempts}, {key}, {keep_for}, {duplicate}, {group}, {batch}{stated})", \
		"QUEUE PUBLISH 'topic.word' payload [, payload ...] [PRIORITY n] [DELAY interval | AT timestamptz]\n" \
		"    [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n] [GROUP text] [BATCH text]\n" \
		"    [KEY text [FOR interval] [ON DUPLICATE {IGNORE | ERROR}]] [MANDATORY] [RETURNING QUEUE, JOB]", \
		"Push to each queue and stream that is bound to the topic, in the current transaction. MANDATORY: if there is none" \
		" it is an error.") \
	VERB(RUN, "RUN", QVERB_WAKES, ROWS, "INSERT 0", NONE, \
		ARG(STATEMENT, "statement", NULL, TEXT, MUST, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 0) \
		ARG(PARAMS, "params", "PARAMS", JSON, MAY, 0) \
		ARG(ELSEWHERE, "database", "DATABASE", STATE, MAY, 0) \
		ARG(ALONE, "alone", "NO TRANSACTION", FLAG, MAY, 0) \
		ARG(TIMEOUT, "timeout", "TIMEOUT", INTERVAL, MAY, 0) \
		ARG(KEEPS, "keep", "KEEP", STATE, MAY, 0) \
		ARG(FORMAT, "format", "FORMAT", STATE, MAY, 0) \
		ARG(WITH, "with", "WITH", OPTIONS, MAY, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(KEEP_FOR, "keep_for", "FOR", INTERVAL, MAY, 0) \
		ARG(NEWER, "newer", "IF NEWER", TIMESTAMP, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(BATCH, "batch", "BATCH", TEXT, MAY, 0) \
		ARG(AFTER, "after", "AFTER", WORDS, MAY, 0) \
		ARG(RETURNING, "returning", "RETURNING", RETURNING, MAY, 0), \
		"SELECT {returned} FROM queue._push{jobs}({queue}, ARRAY[queue._sql_job({queue}, {statement}, {params}, {alone}{ran})]," \
		" {priority}, {delay}, {at}, {headers}, false, {expires}, {attempts}, {key}, {duplicate}, {group}," \
		" {returning}{batched}{once}) AS p", \
		"QUEUE RUN sql ON q [PARAMS jsonb] [DATABASE entry] [NO TRANSACTION] [TIMEOUT interval]\n" \
		"    [KEEP {RESULT | ERROR | ALWAYS | NONE}] [FORMAT {JSON | TEXT | CSV [WITH (option = value [, ...])]}]\n" \
		"    [PRIORITY n] [DELAY interval | AT timestamptz]\n" \
		"    [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n] [GROUP text] [BATCH text]\n" \
		"    [AFTER job [, job ...]]\n" \
		"    [KEY text [FOR interval] [ON DUPLICATE {IGNORE | REPLACE [IF NEWER timestamptz] | RERUN | ERROR}]]\n" \
		"    [RETURNING {ID | JOB} [, ...]]", \
		"Let the proxy carry out SQL later, as the owner of a queue with run = sql. PARAMS: an array, the values of $1, $2, ... NO TRANSACTION: for VACUUM and the like, at least once."\
		" DATABASE: in another database that the proxy knows, at least once."\
		" TIMEOUT: how long it may run. KEEP: what of its outcome is kept. FORMAT: how its rows are."\
		" CSV has the options of COPY: delimiter, null, header, quote, escape, force_quote = '*'.") \
	VERB(BIND, "BIND", QVERB_DEFINITION, FIXED, "BIND", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(PATTERN, "pattern", "TO", STATE, MUST, 0) \
		ARG(CONTAINS, "headers", "WHEN HEADERS", CONTAINED, MAY, 0), \
		"SELECT queue.bind({queue}, {pattern}, ({headers})::pg_catalog.jsonb)", \
		"QUEUE BIND q TO 'topic.*.word' [WHEN HEADERS @> jsonb]", \
		"Let a queue or stream get what is published to topics of this pattern: * is one word, # any number of them.") \
	VERB(UNBIND, "UNBIND", QVERB_DEFINITION, FIXED, "UNBIND", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(PATTERN, "pattern", "FROM", STATE, MUST, 0), \
		"SELECT queue.unbind({queue}, {pattern})", \
		"QUEUE UNBIND q FROM 'topic.*.word'", \
		"Remove a binding.") \
	VERB(ROUTES, "ROUTES", 0, ROWS, "SELECT", ROUTES, \
		ARG(TOPIC, "topic", NULL, STATE, MAY, 0), \
		"SELECT * FROM queue.routes({topic})", \
		"QUEUE ROUTES ['topic.word']", \
		"Show topics and what is bound to them; or where what is published to this one goes.") \
	VERB(TAKE, "TAKE", QVERB_AUTONOMOUS | QVERB_PAYLOAD, ROWS, "SELECT", TAKEN, \
		ARG(QUEUE, "queue", NULL, QUEUES, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0) \
		ARG(LEASE, "lease", "LEASE", INTERVAL, MAY, 1) \
		ARG(HOLD, "hold", "HOLD", MAY_INTERVAL, MAY, 1) \
		ARG(AS, "as", "AS", TEXT, MAY, 0) \
		ARG(READER, "reader", "FOR", STATE, MAY, 0) \
		ARG(LEAST, "least", "MIN", INT, MAY, 0) \
		ARG(WITHIN, "within", "WITHIN", INTERVAL, MAY, 0) \
		ARG(LAG, "lag", "LAG", INTERVAL, MAY, 0) \
		ARG(RANK, "rank", "RANK", INT, MAY, 0) \
		ARG(GROUPED, "grouped", "GROUPED", FLAG, MAY, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 0), \
		NULL, \
		"QUEUE TAKE q [, q2 ...] [GROUPED] [LIMIT n] [WAIT interval]\n" \
		"    [LEASE interval | HOLD [interval]] [AS text] [RANK n] [WHERE (condition)]\n" \
		"QUEUE TAKE stream FOR subscription [LIMIT n] [MIN n WITHIN interval] [LAG interval]\n" \
		"    [WAIT interval] [LEASE interval] [AS text] [WHERE (condition)]", \
		"Lease jobs; finish each with QUEUE DONE, FAIL or RELEASE. RANK: who waits with a higher one is served first." \
		" GROUPED: of a group also the jobs behind its first, in their order." \
		" WHERE: only those that fit, as of PEEK. FOR: the next events of a stream, up to 100 or LIMIT, as one" \
		" delivery with one token.") \
	VERB(POP, "POP", QVERB_AUTONOMOUS | QVERB_PAYLOAD, ROWS, "SELECT", TAKEN, \
		ARG(QUEUE, "queue", NULL, QUEUES, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0) \
		ARG(RANK, "rank", "RANK", INT, MAY, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 0), \
		NULL, \
		"QUEUE POP q [, q2 ...] [LIMIT n] [WAIT interval] [RANK n] [WHERE (condition)]", \
		"Take and finish jobs at once (at most once delivery).") \
	VERB(DONE, "DONE", QVERB_ENDS, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(RESULT, "result", "RESULT", JSON, MAY, 0) \
		ARG(KEEP, "keep", "KEEP", FLAG, MAY, 0) \
		ARG(PARTIAL, "partial", "PARTIAL", FLAG, MAY, 8) \
		ARG(THEN, "then", "THEN", THEN, MAY, 8), \
		"SELECT queue FROM queue._done({job}, false, {result}{kept}) AS queue", \
		"QUEUE DONE {job [, job ...] [ON q] | KEY text ON q} [RESULT jsonb] [KEEP]\n" \
		"    [PARTIAL | THEN PUSH q payload [, payload ...] [options of PUSH]\n" \
		"    | THEN MOVE TO q [options of PUSH] | THEN TAKE [q [, q2 ...]] [options of TAKE]]", \
		"Finish jobs; push the next ones with it, or take the next one after it. A job: its token; or" \
		" of a lease that this connection holds also '<queue number>-<id>', id [ON q], KEY k ON q." \
		" Several: a list, or ANY(array). PARTIAL: those whose lease is held, with a row for each." \
		" KEEP: in the archive, whatever retain_done says.") \
	VERB(MOVE, "MOVE", QVERB_WAKES | QVERB_BEHIND, ROWS, "INSERT 0", NONE, \
		ARG(QUEUE, "queue", "TO", QUEUE, MUST, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(KEEP_FOR, "keep_for", "FOR", INTERVAL, MAY, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(NEWER, "newer", "IF NEWER", TIMESTAMP, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(RETURNING, "returning", "RETURNING", RETURNING, MAY, 0), \
		NULL, \
		"QUEUE DONE job [, job ...] [RESULT jsonb] [KEEP] THEN MOVE TO q [PRIORITY n]\n" \
		"    [DELAY interval | AT timestamptz] [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n]\n" \
		"    [GROUP text] [KEY text [FOR interval] [ON DUPLICATE ... [IF NEWER timestamptz]]]\n" \
		"    [RETURNING {ID | JOB} [, ...]]", \
		"Finish jobs and push their payloads and headers to another queue, both or neither.") \
	VERB(FAIL, "FAIL", QVERB_WAKES | QVERB_MOVES | QVERB_ENDS | QVERB_RETURNS, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(ERROR, "error", "ERROR", TEXT, MAY, 0) \
		ARG(EVENT, "event", "EVENT", EVENTS, MAY, 0) \
		ARG(RETRY_IN, "retry", "RETRY IN", INTERVAL, MAY, 1) \
		ARG(FINAL, "final", "FINAL", FLAG, MAY, 1), \
		"SELECT queue, dead FROM queue._fail({job}, {error}, {retry}, {final}, false{failed}) AS f", \
		"QUEUE FAIL {job [, job ...] [ON q] | KEY text ON q} [ERROR text]\n" \
		"    [RETRY IN interval | FINAL]\n" \
		"QUEUE FAIL token EVENT id [, id ...] [ERROR text] [RETRY IN interval | FINAL]", \
		"Report a failed attempt; the job is retried, or dead. EVENT: of a delivery of a stream these events alone; the" \
		" others are done.") \
	VERB(RELEASE, "RELEASE", QVERB_WAKES | QVERB_MOVES | QVERB_RETURNS, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 0), \
		"SELECT queue FROM queue._release({job}, {delay}, false) AS queue", \
		"QUEUE RELEASE {job [, job ...] [ON q] | KEY text ON q} [DELAY interval]", \
		"Give jobs back; the attempt is not counted.") \
	VERB(EXTEND, "EXTEND", QVERB_MOVES, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(LEASE, "lease", "LEASE", INTERVAL, MAY, 1) \
		ARG(UNTIL, "until", "UNTIL", TIMESTAMP, MAY, 1) \
		ARG(PROGRESS, "progress", "PROGRESS", JSON, MAY, 0), \
		"SELECT queue FROM queue._extend({job}, {lease}, {until}, {progress}) AS queue", \
		"QUEUE EXTEND {job [, job ...] [ON q] | KEY text ON q}\n" \
		"    [LEASE interval | UNTIL timestamptz] [PROGRESS jsonb]", \
		"Move the end of a lease; tell how far the work is, which JOB and AWAIT show.") \
	VERB(CANCEL, "CANCEL", QVERB_DELETES | QVERB_BEGINS, ROWS, "UPDATE", NONE, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT queue, job FROM queue._cancel({job}, false{named}) AS c", \
		"QUEUE CANCEL {job [, job ...] [ON q] | KEY text ON q}", \
		"Remove jobs that wait; tell the workers of those that run.") \
	VERB(CANCEL_ALL, "CANCEL ALL", QVERB_DELETES, VALUE, "UPDATE", NONE, \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 0), \
		"SELECT queue.cancel_all({queue}, false{which})", \
		"QUEUE CANCEL ALL ON q [WHERE (condition)]", \
		"Cancel all jobs of a queue that are not dead. WHERE: as of PEEK.") \
	VERB(RERUN, "RERUN", QVERB_WAKES, ROWS, "UPDATE", NONE, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT queue FROM queue._rerun({job}, false{named}) AS queue", \
		"QUEUE RERUN {job [, job ...] [ON q] | KEY text ON q}", \
		"Make dead jobs ready again, with all their attempts.") \
	VERB(REDRIVE, "REDRIVE", QVERB_WAKES, VALUE, "UPDATE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(WHOSE, "reader", "FOR", STATE, MAY, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(STATE, "state", "STATE", STATE, MAY, 0) \
		ARG(TO, "target", "TO", QUEUE, MAY, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 0), \
		"SELECT queue.redrive{whose}({queue}{read}, {limit}, false{which}{moved})", \
		"QUEUE REDRIVE q [STATE {dead | later}] [TO q2] [LIMIT n] [WHERE (condition)]\n" \
		"QUEUE REDRIVE stream FOR subscription [STATE {dead | later}] [LIMIT n]", \
		"Make the dead jobs of a queue ready again, or those that wait for their time; there, or in another queue." \
		" WHERE: as of PEEK. FOR: events that failed by themselves.") \
	VERB(PEEK, "PEEK", QVERB_PAYLOAD, ROWS, "SELECT", PEEK, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(WHOSE, "reader", "FOR", STATE, MAY, 1) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(STATE, "state", "STATE", STATE, MAY, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 1), \
		"SELECT * FROM queue.peek{of}({queue}{read}, {limit}, {state})", \
		"QUEUE PEEK q [LIMIT n] [STATE {ready | later | leased | blocked | dead | done}]\n" \
		"    [WHERE (condition)]\n" \
		"QUEUE PEEK stream FOR subscription [LIMIT n] [STATE {ready | later | leased | dead}]\n" \
		"QUEUE PEEK token [LIMIT n]", \
		"Look at jobs without taking them. done: what the archive holds. WHERE: SQL over the columns of PEEK; without" \
		" parentheses it goes on to the end. FOR: events that failed by themselves. Of a token: the events of a delivery" \
		" that is out.") \
	VERB(JOB, "JOB", QVERB_PAYLOAD, ROWS, "SELECT", JOB, \
		ARG(REF, "job", NULL, REF, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT * FROM queue.job{of}({job}{named})", \
		"QUEUE JOB {job [ON q] | KEY text ON q}", \
		"Show everything about one job.") \
	VERB(AWAIT, "AWAIT", QVERB_AUTONOMOUS, ROWS, "SELECT", AWAIT, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(BATCH, "batch", "BATCH", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(ANY, "any", "ANY", FLAG, MAY, 1) \
		ARG(ALL, "all", "ALL", FLAG, MAY, 1) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0), \
		NULL, \
		"QUEUE AWAIT {job [, job ...] [ON q] | KEY text ON q} [ANY | ALL]\n" \
		"    [WAIT interval]\n" \
		"QUEUE AWAIT BATCH text ON q [WAIT interval]", \
		"Wait for the end of all of these jobs, or of any, and show their results. BATCH: until no job of it is" \
		" unfinished; how many are in which state.") \
	VERB(HISTORY, "HISTORY", 0, ROWS, "SELECT", HISTORY, \
		ARG(REF, "job", NULL, REF, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT * FROM queue.history({job}{named})", \
		"QUEUE HISTORY {job [ON q] | KEY text ON q}", \
		"Show the attempts at a job that did not end well.") \
	VERB(ERRORS, "ERRORS", 0, ROWS, "SELECT", ERRORS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0), \
		"SELECT * FROM queue.errors({queue})", \
		"QUEUE ERRORS q", \
		"Count the jobs that have failed, by the text of their last error.") \
	VERB(WORKERS, "WORKERS", 0, ROWS, "SELECT", WORKERS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MAY, 0), \
		"SELECT * FROM queue._workers({queue}, {known})", \
		"QUEUE WORKERS [q]", \
		"Show who works on which job and since when, and who waits for one at this proxy, the longest first.") \
	VERB(HEALTH, "HEALTH", 0, ROWS, "SELECT", HEALTH, \
		ARG(QUEUE, "queue", NULL, QUEUE, MAY, 0), \
		"SELECT * FROM queue.health({queue})", \
		"QUEUE HEALTH [q]", \
		"Show what is well and what is not: queues, who holds back vacuum, schedules, proxies.") \
	VERB(PURGE, "PURGE", QVERB_DELETES, VALUE, "DELETE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(WHOSE, "reader", "FOR", STATE, MAY, 0) \
		ARG(STATE, "state", "STATE", STATE, MAY, 0) \
		ARG(OLDER, "older", "OLDER THAN", INTERVAL, MAY, 0) \
		ARG(WHERE, "where", "WHERE", CONDITION, MAY, 0), \
		"SELECT queue.purge{whose}({queue}{read}, {of_state}, false, {older_than}{which})", \
		"QUEUE PURGE q [STATE {ready | later | blocked | dead | done}] [OLDER THAN interval]\n" \
		"    [WHERE (condition)]\n" \
		"QUEUE PURGE stream FOR subscription [STATE {ready | later | dead}] [OLDER THAN interval]", \
		"Delete jobs that are not leased. OLDER THAN: by their end if they have ended or are dead, else by their push." \
		" FOR: events that failed by themselves.") \
	VERB(SCHEDULE, "SCHEDULE", 0, FIXED, "CREATE SCHEDULE", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(EVERY, "every", "EVERY", INTERVAL, MUST, 1) \
		ARG(FROM_END, "from_end", "FROM END", FLAG, MAY, 2) \
		ARG(CRON, "cron", "CRON", TEXT, MUST, 1) \
		ARG(ZONE, "zone", "TIME ZONE", TEXT, MAY, 2) \
		ARG(MISSED, "missed", "MISSED", STATE, MAY, 0) \
		ARG(OVERLAP, "overlap", "OVERLAP", STATE, MAY, 0) \
		ARG(STARTING, "starting", "STARTING", TIMESTAMP, MAY, 0) \
		ARG(UNTIL, "until", "UNTIL", TIMESTAMP, MAY, 0) \
		ARG(SCHEDULED, "payload", "PUSH", TEXT, MUST, 3) \
		ARG(PUBLISHED, "topic", "PUBLISH", PUBLISHED, MUST, 3) \
		ARG(STATEMENT, "statement", "RUN", TEXT, MUST, 3) \
		ARG(PARAMS, "params", "PARAMS", JSON, MAY, 0) \
		ARG(ELSEWHERE, "database", "DATABASE", STATE, MAY, 0) \
		ARG(ALONE, "alone", "NO TRANSACTION", FLAG, MAY, 0) \
		ARG(TIMEOUT, "timeout", "TIMEOUT", INTERVAL, MAY, 0) \
		ARG(KEEPS, "keep", "KEEP", STATE, MAY, 0) \
		ARG(FORMAT, "format", "FORMAT", STATE, MAY, 0) \
		ARG(WITH, "with", "WITH", OPTIONS, MAY, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 0) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0), \
		"SELECT queue._schedule({name}, {on}, {every}, {from_end}, {cron}, {zone}, {missed}, {overlap}," \
		" {starting}, {until}, ARRAY[{scheduled}], {priority}, {delay}, {headers}, {expires}, {attempts}," \
		" {key}, {duplicate}, {group}, false, NULL, {topic})", \
		"QUEUE SCHEDULE name [ON q] {EVERY interval [FROM END] | CRON text [TIME ZONE text]}\n" \
		"    [MISSED {ONE | SKIP | ALL}] [OVERLAP {ALLOW | SKIP}]\n" \
		"    [STARTING timestamptz] [UNTIL timestamptz]\n" \
		"    {PUSH payload | PUBLISH 'topic.word' payload\n" \
		"    | RUN sql [PARAMS jsonb] [DATABASE entry] [NO TRANSACTION] [TIMEOUT interval]\n" \
		"        [KEEP {RESULT | ERROR | ALWAYS | NONE}] [FORMAT {JSON | TEXT | CSV [WITH (option = value [, ...])]}]}\n" \
		"    [PRIORITY n] [DELAY interval] [EXPIRES interval] [HEADERS jsonb]\n" \
		"    [ATTEMPTS n] [GROUP text] [KEY text [ON DUPLICATE ...]]", \
		"Push a job again and again, each time once: CRON '*/5 8-18 * * mon-fri', EVERY '1 h'. An equal" \
		" schedule that is there is left as it is. MISSED: what becomes of times when no proxy was there." \
		" OVERLAP SKIP: not while the last job has not ended. PUBLISH, to all that is bound to a topic, goes" \
		" without ON.") \
	VERB(UNSCHEDULE, "UNSCHEDULE", 0, FIXED, "DROP SCHEDULE", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(IF_EXISTS, "exists", "IF EXISTS", FLAG, MAY, 0), \
		"SELECT queue.unschedule({name}, {exists})", \
		"QUEUE UNSCHEDULE name [IF EXISTS]", \
		"Remove a schedule.") \
	VERB(SCHEDULES, "SCHEDULES", 0, ROWS, "SELECT", SCHEDULES, , \
		"SELECT * FROM queue.schedules()", \
		"QUEUE SCHEDULES", \
		"Show the schedules of this role: when they are due, and what became of them.") \
	VERB(TRIGGER, "TRIGGER", QVERB_WAKES, VALUE, "INSERT 0", NONE, \
		ARG(SCHEDULE, "schedule", "SCHEDULE", STATE, MUST, 0), \
		"SELECT 1 FROM queue.trigger_schedule({schedule}, false)", \
		"QUEUE TRIGGER SCHEDULE name", \
		"Push the job of a schedule once more, now.") \
	VERB(SUBSCRIBE, "SUBSCRIBE", 0, FIXED, "SUBSCRIBE", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(QUEUE, "queue", "TO", QUEUE, MUST, 0) \
		ARG(START, "start", "FROM", STATE, MAY, 0) \
		ARG(WITH, "with", "WITH", OPTIONS, MAY, 0), \
		"SELECT queue.subscribe({name}, {queue}, {start}, {with})", \
		"QUEUE SUBSCRIBE name TO stream [FROM {BEGINNING | NOW | timestamptz | id | position}]\n" \
		"    [WITH (option = value, ...)]", \
		"Begin to read a stream: from now on, unless FROM says otherwise. Each subscription gets each event. Options:" \
		" lease ('1 min'), max_attempts (a number), retry (as of CREATE), on_fail (continue | block), parallel (1: in order |" \
		" a number: so many deliveries at a time, no group in two of them).") \
	VERB(UNSUBSCRIBE, "UNSUBSCRIBE", 0, FIXED, "UNSUBSCRIBE", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(QUEUE, "queue", "FROM", QUEUE, MUST, 0), \
		"SELECT queue.unsubscribe({name}, {queue}, false)", \
		"QUEUE UNSUBSCRIBE name FROM stream", \
		"Remove a subscription, with what it has read and not.") \
	VERB(SEEK, "SEEK", 0, FIXED, "SEEK", NONE, \
		ARG(NAME, "name", NULL, STATE, MUST, 0) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 0) \
		ARG(START, "start", "TO", STATE, MUST, 0), \
		"SELECT queue.seek({name}, {queue}, {start}, false)", \
		"QUEUE SEEK name ON stream TO {BEGINNING | NOW | timestamptz | id | position}", \
		"Let a subscription go on elsewhere. What it has out now is lost to who has it.") \
	VERB(SUBSCRIPTIONS, "SUBSCRIPTIONS", 0, ROWS, "SELECT", SUBSCRIPTIONS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MAY, 0), \
		"SELECT * FROM queue.subscriptions({queue})", \
		"QUEUE SUBSCRIPTIONS [stream]", \
		"Show streams and who reads them: how many events are to come, how old the first of them is, and the position.") \
	VERB(TRACK, "TRACK", 0, FIXED, "TRACK", NONE, \
		ARG(TABLE, "table", NULL, TABLE, MUST, 0) \
		ARG(QUEUE, "queue", "IN", QUEUE, MUST, 0) \
		ARG(EVENTS, "events", "FOR", WORDS, MAY, 0) \
		ARG(COLUMNS, "columns", "COLUMNS", NAMES, MAY, 1) \
		ARG(IGNORE, "ignore", "IGNORE", NAMES, MAY, 1) \
		ARG(KNOWN_BY, "key", "KEY", NAMES, MAY, 0) \
		ARG(COMPUTED, "headers", "HEADERS", SQL, MAY, 0) \
		ARG(WHEN, "when", "WHEN", SQL, MAY, 0), \
		"SELECT queue.track(({table})::pg_catalog.regclass, {queue}, {events}, {columns}, {ignore}, {key}, {headers}, {when})", \
		"QUEUE TRACK table IN q [FOR {INSERT | UPDATE | DELETE | TRUNCATE} [, ...]]\n" \
		"    [COLUMNS (name, ...) | IGNORE (name, ...)] [KEY (name, ...)]\n" \
		"    [HEADERS (expression)] [WHEN (condition)]", \
		"Push each change of a table, by a trigger, in the transaction that changes it: {\"op\", \"table\", \"key\", \"new\"," \
		" \"old\", \"xid\"}. q: a stream, a queue, or a topic. Expressions are of NEW, OLD and TG_OP.") \
	VERB(UNTRACK, "UNTRACK", 0, FIXED, "UNTRACK", NONE, \
		ARG(TABLE, "table", NULL, TABLE, MUST, 0) \
		ARG(QUEUE, "queue", "IN", QUEUE, MAY, 0), \
		"SELECT queue.untrack(({table})::pg_catalog.regclass, {queue})", \
		"QUEUE UNTRACK table [IN q]", \
		"Push no more changes of a table; without IN nowhere.") \
	VERB(TRACKED, "TRACKED", 0, ROWS, "SELECT", TRACKED, \
		ARG(TABLE, "table", NULL, TABLE, MAY, 0), \
		"SELECT * FROM queue.tracked(({table})::pg_catalog.regclass)", \
		"QUEUE TRACKED [table]", \
		"Show which tables are tracked, where their changes go, and what was said of it.") \
	VERB(HELP, "HELP", QVERB_LOCAL, ROWS, "SELECT", HELP, \
		ARG(VERB, "verb", NULL, VERB, MAY, 0), \
		NULL, \
		"QUEUE HELP [verb]", \
		"Show the verbs of the QUEUE language.")
/* clang-format on */

/*
 * DONE ... THEN PUSH: {done} is the SQL text of the DONE. The push speaks of it, so that it comes
 * after it.
 */
#define QUEUE_THEN_PUSH_SQL \
	"SELECT {returned} FROM (SELECT pg_catalog.count(*) AS jobs FROM ({done}) AS job) AS done," \
	" LATERAL queue._push{jobs}({queue}, {payload}, {priority}, {delay}, {at}," \
	" queue._parent({job}, {headers}), jobs IS NULL," \
	" {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}{stated}{batched}{once}) AS p"

/* DONE ... THEN MOVE: one function, which reads what it moves before that is gone. */
#define QUEUE_THEN_MOVE_SQL \
	"SELECT {returned} FROM queue._move({job}, {result}, {keep}, {queue}, {priority}, {delay}, {at}," \
	" {headers}, {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}{once}) AS p"

/* WHERE: the client's own SQL over what PEEK shows, in the client's statement, so with nobody else's rights or settings. */
#define QUEUE_PEEK_WHERE_SQL \
	"SELECT * FROM queue.peek{of}({queue}, 2147483647, {state}) AS peek WHERE {where} LIMIT coalesce({limit}, 10)"
/* What a TAKE with it is described by, never executed: its columns, and the parameters of the condition. */
#define QUEUE_TAKE_WHERE_SQL \
	"SELECT (x.taken).* FROM (SELECT NULL::queue.taken_{kind} AS taken) AS x," \
	" (SELECT FROM queue.peek{of}(NULL, 0) AS peek WHERE {where}) AS y"
#define QUEUE_TAKE_FOR_WHERE_SQL \
	"SELECT (x.taken).* FROM (SELECT NULL::queue.delivered_{kind} AS taken) AS x," \
	" (SELECT FROM (SELECT (e.one).* FROM (SELECT NULL::queue._sighted_{kind} AS one) AS e) AS peek WHERE {where}) AS y"
#define QUEUE_WHICH_SQL \
	", ARRAY(SELECT id FROM queue.peek{of}({queue}, 2147483647, {seen}) AS peek WHERE {where})"

/* STATS ... BY */
#define QUEUE_STATS_BY_SQL "SELECT * FROM queue._stats_by{whose}({queue}{read}, {by}, {last}, {known})"

/* DONE ... PARTIAL */
#define QUEUE_PARTIAL_SQL "SELECT job, ok, sqlstate FROM queue._done_partial({job}, {result}{kept}) AS d"
