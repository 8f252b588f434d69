/*
 * What a row of the table of statements is (calls.h has the rows), and where a column of theirs is.
 */
#ifndef QB_QUEUE_QUEUE_CALL_H
#define QB_QUEUE_QUEUE_CALL_H

#include "calls.h"
#include "pool/task.h"
#include "wire/build.h"

enum call_id {
#define CALL_ENUM(name, ...) CALL_##name,
#define CALL_NOTHING(...)
	QUEUE_CALLS(CALL_ENUM, CALL_NOTHING, CALL_NOTHING)
#undef CALL_ENUM
#undef CALL_NOTHING
		CALL_COUNT
};

struct queue_call {
	const char *name, *sql;
	const uint32_t *oids;
	int n_params;
	const struct wire_field *columns;
	int n_columns;
};

extern const struct queue_call queue_calls[CALL_COUNT];

/* As a task: prepared, its parameters where they are. */
struct task_spec call_task(
	enum call_id id, const struct bind_param *params, const struct task_ops *ops, void *arg);
/* Its text for the queue of this number. */
void call_put(struct buf *b, enum call_id id, int64_t number);
/* ... with these numbers in it. */
void call_print(char *dst, size_t size, enum call_id id, ...);

/* Where a column is. */
#define CALL_PLACE(name, type) TAKEN_##name,
enum taken_column { ROW_TAKEN(CALL_PLACE, , ) TAKEN_COLUMNS };
#undef CALL_PLACE
#define CALL_PLACE(name, type) HIDDEN_##name, /* behind those of the client */
enum hidden_column { ROW_HIDDEN(CALL_PLACE, ) HIDDEN_COLUMNS };
#undef CALL_PLACE
#define CALL_PLACE(name, type) DELIVERY_##name,
enum delivery_column { ROW_SIFTED(CALL_PLACE, , ) SIFTED_COLUMNS, DELIVERY_COLUMNS = DELIVERY_passed };
#undef CALL_PLACE
#define CALL_PLACE(name, type) AWAIT_##name,
enum await_column { ROW_AWAIT(CALL_PLACE, ) AWAIT_COLUMNS };
#undef CALL_PLACE
#define CALL_PLACE(name, type) BATCH_##name,
enum batch_column { BATCH_number, ROW_BATCH(CALL_PLACE, ) BATCH_COLUMNS };
#undef CALL_PLACE
#define CALL_PLACE(name, type) GAUGES_##name,
enum gauges_column { ROW_GAUGES(CALL_PLACE, ) GAUGES_COLUMNS };
#undef CALL_PLACE

#endif
