// pgx without database/sql: its own connections, batches and pool. Prepares everything, binary results.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

var ctx = context.Background()

// [producer]
func produce(ctx context.Context, conn *pgx.Conn, order int) error {
	payload, _ := json.Marshal(map[string]int{"order": order})
	return conn.BeginFunc(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", order); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "QUEUE PUSH mail $1", string(payload))
		return err
	})
}

// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
func work(ctx context.Context, conn *pgx.Conn) (bool, error) {
	rows, err := conn.Query(ctx, "QUEUE TAKE mail WAIT '20s'")
	if err != nil {
		return false, err
	}
	var token string
	var job struct{ Order int }
	found := rows.Next()
	if found {
		into := make([]interface{}, len(rows.FieldDescriptions())) // nil: passed over
		into[1], into[4] = &token, &job
		err = rows.Scan(into...)
	}
	rows.Close()
	if err == nil {
		err = rows.Err()
	}
	if !found || err != nil {
		return false, err
	}
	// the work and DONE commit together, or not at all
	err = conn.BeginFunc(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO sent VALUES ($1)", job.Order); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "QUEUE DONE $1", token)
		return err
	})
	if err != nil {
		_, err = conn.Exec(ctx, "QUEUE FAIL $1 ERROR $2", token, err.Error())
		var late *pgconn.PgError
		if errors.As(err, &late) && (late.Code == "QB001" || late.Code == "QB002") {
			err = nil // it is not our job any more, or cancelled
		}
	}
	return true, err
}

// [/worker]

// What can be asked of a connection and of a transaction.
type asker interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	Query(context.Context, string, ...interface{}) (pgx.Rows, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

var (
	conn *pgx.Conn
	tx   pgx.Tx
)

func connect() (err error) {
	conn, err = pgx.Connect(ctx, url(""))
	return
}

func on() asker {
	if tx != nil {
		return tx
	}
	return conn
}

func text(v interface{}) interface{} {
	switch v := v.(type) {
	case nil, string:
		return v
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case map[string]interface{}, []interface{}:
		b, _ := json.Marshal(v)
		return string(b)
	}
	return fmt.Sprint(v)
}

func all(rows pgx.Rows, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, types, got := []string{}, []string{}, [][]interface{}{}
	for rows.Next() {
		vs, err := rows.Values()
		if err != nil {
			return nil, err
		}
		for i := range vs {
			vs[i] = text(vs[i])
		}
		got = append(got, vs)
	}
	for _, f := range rows.FieldDescriptions() {
		columns, types = append(columns, string(f.Name)), append(types, fmt.Sprint(f.DataTypeOID))
	}
	return answer{"columns": columns, "types": types, "rows": got, "tag": rows.CommandTag().String()}, rows.Err()
}

func do(w []string) (answer, error) {
	switch w[0] {
	case "exec":
		tag, err := on().Exec(ctx, w[1], values(w[2:])...)
		return answer{"count": tag.RowsAffected()}, err
	case "query", "prepare":
		return all(on().Query(ctx, w[1], values(w[2:])...))
	case "begin":
		var err error
		tx, err = conn.Begin(ctx)
		return ok(err)
	case "commit", "rollback":
		t := tx
		tx = nil
		if w[0] == "commit" {
			return ok(t.Commit(ctx))
		}
		return ok(t.Rollback(ctx))
	case "batch":
		batch := &pgx.Batch{}
		for _, v := range values(w[2:]) {
			batch.Queue(w[1], v)
		}
		results := on().SendBatch(ctx, batch)
		for range w[2:] {
			if _, err := results.Exec(); err != nil {
				results.Close()
				return nil, err
			}
		}
		return ok(results.Close())
	case "pool":
		return pool(number(w[1]))
	case "ping":
		return ok(conn.Ping(ctx))
	case "cancel":
		stop, cancel := context.WithCancel(ctx)
		go func() {
			input.Scan()
			cancel()
		}()
		return all(on().Query(stop, w[1]))
	case "timeout":
		limit, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return all(on().Query(limit, w[1]))
	case "reconnect":
		conn.Close(ctx)
		return ok(connect())
	case "produce":
		return ok(produce(ctx, conn, number(w[1])))
	case "work":
		found, err := work(ctx, conn)
		return answer{"ok": found}, err
	}
	return nil, nil
}

func pool(n int) (answer, error) {
	pool, err := pgxpool.Connect(ctx, url("&pool_max_conns=1"))
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	for i := 0; i < n; i++ {
		if _, err = all(pool.Query(ctx, "SELECT 1")); err != nil {
			return nil, err
		}
	}
	return ok(nil)
}

func sqlstate(err error) string {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return ""
}

func main() {
	must(connect())
	run(do, sqlstate)
	conn.Close(ctx)
}
