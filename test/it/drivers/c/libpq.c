/*
 * libpq: simple and parameterized queries, prepared statements, single rows, binary results,
 * pipelines.
 *
 * Commands in, answers out: ../README.md.
 */
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* [producer] */
static bool ok(PGresult *r)
{
	bool good = PQresultStatus(r) == PGRES_COMMAND_OK;

	PQclear(r);
	return good;
}

static bool produce(PGconn *conn, const char *order)
{
	char payload[64];
	const char *job[] = {payload};

	snprintf(payload, sizeof(payload), "{\"order\": %s}", order);
	/* both, or neither: after an error COMMIT is a ROLLBACK, and its tag says so */
	return ok(PQexec(conn, "BEGIN")) &
	       ok(PQexecParams(
		       conn, "INSERT INTO orders VALUES ($1)", 1, NULL, &order, NULL, NULL, 0)) &
	       ok(PQexecParams(conn, "QUEUE PUSH mail $1", 1, NULL, job, NULL, NULL, 0)) &
	       ok(PQexec(conn, "COMMIT"));
}
/* [/producer] */

/* [worker] */
/* One turn: call it in a loop. False if there was nothing to do for 20 seconds. */
static bool work(PGconn *conn)
{
	PGresult *job = PQexec(conn, "QUEUE TAKE mail WAIT '20s'"), *r = NULL;
	bool found = PQresultStatus(job) == PGRES_TUPLES_OK && PQntuples(job) == 1;

	if (found) {
		const char *token = PQgetvalue(job, 0, PQfnumber(job, "token"));
		const char *payload = PQgetvalue(job, 0, PQfnumber(job, "payload"));
		const char *order =
			payload + strcspn(payload, "-0123456789"); /* or your JSON library */
		char *number = strndup(order, strspn(order, "-0123456789"));
		const char *value[] = {number}, *done[] = {token}, *failed[] = {token, NULL};

		PQclear(PQexec(conn, "BEGIN"));
		r = PQexecParams(
			conn, "INSERT INTO sent VALUES ($1)", 1, NULL, value, NULL, NULL, 0);
		if (PQresultStatus(r) == PGRES_COMMAND_OK) {
			PQclear(r); /* the work and DONE commit together, or not at all */
			r = PQexecParams(conn, "QUEUE DONE $1", 1, NULL, done, NULL, NULL, 0);
		}
		PQclear(PQexec(conn, "COMMIT"));
		if (PQresultStatus(r) != PGRES_COMMAND_OK) {
			failed[1] = PQresultErrorMessage(r);
			PQclear(PQexecParams(
				conn, "QUEUE FAIL $1 ERROR $2", 2, NULL, failed, NULL, NULL, 0));
		}
		PQclear(r);
		free(number);
	}
	PQclear(job);
	return found;
}
/* [/worker] */

#define MAX_WORDS 32

static PGconn *conn;
static char *prepared[64]; /* the text of statement pN */
static int n_prepared;

static void say_field(PGresult *r, int row, int i)
{
	const char *v = PQgetvalue(r, row, i);
	char number[32];

	if (PQgetisnull(r, row, i)) {
		fputs("null", stdout);
		return;
	}
	if (PQfformat(r, i) == 1 && (PQftype(r, i) == 20 || PQftype(r, i) == 23)) {
		int64_t n = 0;

		for (int k = 0; k < PQgetlength(r, row, i); k++)
			n = (int64_t)((uint64_t)n << 8 | (uint8_t)v[k]);
		snprintf(number, sizeof(number), "%lld", (long long)n);
		v = number;
	}
	if (PQfformat(r, i) == 1 && PQftype(r, i) == 3802)
		v++; /* the version of jsonb */
	json_say(v);
}

static void say_rows(PGresult *r, const char *before)
{
	for (int row = 0; row < PQntuples(r); row++) {
		fputs(row == 0 ? before : ",", stdout);
		for (int i = 0; i < PQnfields(r); i++) {
			fputs(i == 0 ? "[" : ",", stdout);
			say_field(r, row, i);
		}
		putchar(']');
	}
}

static bool say_error(PGresult *r)
{
	if (PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK)
		return false;
	fputs("{\"error\":", stdout);
	json_say(PQresultErrorField(r, PG_DIAG_SQLSTATE));
	fputs(",\"message\":", stdout);
	json_say(PQresultErrorMessage(r));
	putchar('}');
	return true;
}

static void say(PGresult *r)
{
	if (!say_error(r)) {
		printf("{\"count\":%s,\"columns\":[", *PQcmdTuples(r) ? PQcmdTuples(r) : "null");
		for (int i = 0; i < PQnfields(r); i++) {
			if (i > 0)
				putchar(',');
			json_say(PQfname(r, i));
		}
		fputs("],\"types\":[", stdout);
		for (int i = 0; i < PQnfields(r); i++)
			printf("%s\"%u\"", i > 0 ? "," : "", PQftype(r, i));
		fputs("],\"rows\":[", stdout);
		say_rows(r, "");
		fputs("]}", stdout);
	}
	PQclear(r);
}

static void connect_it(void)
{
	const char *keys[] = {"host", "port", "dbname", "user", "password", NULL};
	const char *values[] = {getenv("QB_HOST"), getenv("QB_PORT"), getenv("QB_DB"),
		getenv("QB_USER"), getenv("QB_PASSWORD"), NULL};

	n_prepared = 0;
	conn = PQconnectdbParams(keys, values, 0);
	if (PQstatus(conn) != CONNECTION_OK) {
		fputs(PQerrorMessage(conn), stderr);
		exit(1);
	}
}

static void prepare(const char *sql, int n, const char *const *values)
{
	char name[16];
	int i = 0;

	while (i < n_prepared && strcmp(prepared[i], sql) != 0)
		i++;
	snprintf(name, sizeof(name), "p%d", i);
	if (i == n_prepared) {
		PGresult *r = PQprepare(conn, name, sql, 0, NULL);

		if (say_error(r)) {
			PQclear(r);
			return;
		}
		PQclear(r);
		prepared[n_prepared++] = strdup(sql);
	}
	say(PQexecPrepared(conn, name, n, values, NULL, NULL, 0));
}

static void stream(const char *sql)
{
	PGresult *r;
	bool first = true, failed = false;

	PQsendQuery(conn, sql);
	PQsetSingleRowMode(conn);
	while ((r = PQgetResult(conn)) != NULL) {
		if (PQresultStatus(r) == PGRES_SINGLE_TUPLE) {
			say_rows(r, first ? "{\"rows\":[" : ",");
			first = false;
		} else if (!failed && PQresultStatus(r) != PGRES_TUPLES_OK) {
			failed = say_error(r);
		}
		PQclear(r);
	}
	if (!failed)
		fputs(first ? "{\"rows\":[]}" : "]}", stdout);
}

/* Pipeline mode: all executions, then one Sync. */
static void batch(const char *sql, int n, const char *const *values)
{
	PGresult *r;
	bool failed = false;

	PQenterPipelineMode(conn);
	for (int i = 0; i < n; i++)
		PQsendQueryParams(conn, sql, 1, NULL, &values[i], NULL, NULL, 0);
	PQpipelineSync(conn);
	for (int i = 0; i < n; i++) {
		r = PQgetResult(conn);
		if (!failed && PQresultStatus(r) != PGRES_PIPELINE_ABORTED)
			failed = say_error(r);
		PQclear(r);
		PQclear(PQgetResult(conn));
	}
	PQclear(PQgetResult(conn)); /* PGRES_PIPELINE_SYNC */
	PQexitPipelineMode(conn);
	if (!failed)
		fputs("{\"ok\":true}", stdout);
}

static void cancel(const char *sql)
{
	PGcancel *token = PQgetCancel(conn);
	char error[256], *word = NULL;
	size_t size = 0;
	PGresult *r;

	PQsendQuery(conn, sql);
	if (getline(&word, &size, stdin) > 0)
		PQcancel(token, error, sizeof(error));
	PQfreeCancel(token);
	free(word);
	r = PQgetResult(conn);
	PQclear(PQgetResult(conn));
	say(r);
}

static void run(const char *sql, int n, const char *const *values)
{
	say(n > 0 ? PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0) : PQexec(conn, sql));
}

static void answer(const char *verb, const char *sql, int n, const char *const *values)
{
	if (strcmp(verb, "exec") == 0 || strcmp(verb, "query") == 0)
		run(sql, n, values);
	else if (strcmp(verb, "begin") == 0 || strcmp(verb, "commit") == 0 ||
		 strcmp(verb, "rollback") == 0)
		run(verb, 0, NULL);
	else if (strcmp(verb, "prepare") == 0)
		prepare(sql, n, values);
	else if (strcmp(verb, "binary") == 0)
		say(PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 1));
	else if (strcmp(verb, "stream") == 0)
		stream(sql);
	else if (strcmp(verb, "batch") == 0)
		batch(sql, n, values);
	else if (strcmp(verb, "cancel") == 0)
		cancel(sql);
	else if (strcmp(verb, "produce") == 0)
		fputs(produce(conn, sql) ? "{\"ok\":true}" : "{\"error\":null}", stdout);
	else if (strcmp(verb, "work") == 0)
		fputs(work(conn) ? "{\"ok\":true}" : "{\"ok\":false}", stdout);
	else if (strcmp(verb, "reconnect") == 0) {
		PQfinish(conn);
		connect_it();
		fputs("{\"ok\":true}", stdout);
	} else {
		printf("{\"skip\":\"%s\"}", verb);
	}
}

int main(void)
{
	char *line = NULL, *rest;
	size_t size = 0;
	ssize_t len;

	setvbuf(stdin, NULL, _IONBF, 0);
	connect_it();
	while ((len = getline(&line, &size, stdin)) > 0) {
		const char *words[MAX_WORDS] = {NULL};
		int n = 0;

		line[len - 1] = '\0';
		for (rest = line; rest != NULL && n < MAX_WORDS;)
			words[n++] = strsep(&rest, "\t");
		for (int i = 2; i < n; i++)
			words[i] = words[i][0] == 'n' ? NULL : words[i] + 2;
		answer(words[0], words[1], n > 2 ? n - 2 : 0, words + 2);
		putchar('\n');
		fflush(stdout);
	}
	free(line);
	PQfinish(conn);
	return 0;
}
