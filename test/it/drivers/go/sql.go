// database/sql with lib/pq, or with pgx: the argument is "postgres" or "pgx".

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgconn"
	_ "github.com/jackc/pgx/v4/stdlib"
	"github.com/lib/pq"
)

var ctx = context.Background()

// [producer]
func produce(db *sql.DB, order int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err = tx.Exec("INSERT INTO orders VALUES ($1)", order); err != nil {
		return err
	}
	payload, _ := json.Marshal(map[string]int{"order": order})
	if _, err = tx.Exec("QUEUE PUSH mail $1", string(payload)); err != nil {
		return err
	}
	return tx.Commit()
}

// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds.
func work(db *sql.DB) (bool, error) {
	var token, payload string
	var job struct{ Order int }
	rows, err := db.Query("QUEUE TAKE mail WAIT '20s'")
	if err != nil {
		return false, err
	}
	found := rows.Next()
	if found {
		columns, _ := rows.Columns()
		into := make([]interface{}, len(columns))
		for i := range into {
			into[i] = new(interface{})
		}
		into[1], into[4] = &token, &payload
		err = rows.Scan(into...)
	}
	rows.Close()
	if !found || err != nil {
		return false, err
	}
	json.Unmarshal([]byte(payload), &job)
	if err = finish(db, token, job.Order); err != nil {
		_, err = db.Exec("QUEUE FAIL $1 ERROR $2", token, err.Error())
		if late, ok := err.(*pq.Error); ok && (late.Code == "QB001" || late.Code == "QB002") {
			err = nil // it is not our job any more, or cancelled
		}
	}
	return true, err
}

// The work and DONE commit together, or not at all.
func finish(db *sql.DB, token string, order int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err = tx.Exec("INSERT INTO sent VALUES ($1)", order); err != nil {
		return err
	}
	if _, err = tx.Exec("QUEUE DONE $1", token); err != nil {
		return err
	}
	return tx.Commit()
}

// [/worker]

// What can be asked of a connection and of a transaction.
type asker interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
	QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
}

var (
	db       *sql.DB
	conn     *sql.Conn
	tx       *sql.Tx
	prepared = map[string]*sql.Stmt{}
	order    []*sql.Stmt // a map would be closed in another order each time
)

func connect() (err error) {
	if db, err = sql.Open(os.Args[1], url("")); err == nil {
		db.SetMaxOpenConns(2)
		conn, err = db.Conn(ctx)
	}
	return
}

func disconnect() {
	for _, stmt := range order {
		stmt.Close()
	}
	order, prepared = nil, map[string]*sql.Stmt{}
	conn.Close()
	db.Close()
}

func on() asker {
	if tx != nil {
		return tx
	}
	return conn
}

func all(rows *sql.Rows, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	kinds, _ := rows.ColumnTypes()
	types, got := []string{}, [][]*string{}
	for _, k := range kinds {
		types = append(types, k.DatabaseTypeName())
	}
	for rows.Next() {
		row, into := make([]*string, len(columns)), make([]interface{}, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err = rows.Scan(into...); err != nil {
			return nil, err
		}
		got = append(got, row)
	}
	return answer{"columns": columns, "types": types, "rows": got}, rows.Err()
}

func do(w []string) (answer, error) {
	switch w[0] {
	case "exec":
		r, err := on().ExecContext(ctx, w[1], values(w[2:])...)
		if err != nil {
			return nil, err
		}
		n, _ := r.RowsAffected()
		return answer{"count": n}, nil
	case "query":
		return all(on().QueryContext(ctx, w[1], values(w[2:])...))
	case "prepare":
		if prepared[w[1]] == nil {
			stmt, err := conn.PrepareContext(ctx, w[1])
			if err != nil {
				return nil, err
			}
			prepared[w[1]] = stmt
			order = append(order, stmt)
		}
		return all(prepared[w[1]].QueryContext(ctx, values(w[2:])...))
	case "begin":
		var err error
		tx, err = conn.BeginTx(ctx, nil)
		return ok(err)
	case "commit", "rollback":
		t := tx
		tx = nil
		if w[0] == "commit" {
			return ok(t.Commit())
		}
		return ok(t.Rollback())
	case "pool":
		return pool(number(w[1]))
	case "ping":
		return ok(conn.PingContext(ctx))
	case "cancel":
		stop, cancel := context.WithCancel(ctx)
		go func() {
			input.Scan()
			cancel()
		}()
		return all(on().QueryContext(stop, w[1]))
	case "timeout":
		limit, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		return all(on().QueryContext(limit, w[1]))
	case "reconnect":
		disconnect()
		return ok(connect())
	case "produce":
		return ok(produce(db, number(w[1])))
	case "work":
		found, err := work(db)
		return answer{"ok": found}, err
	}
	return nil, nil
}

func pool(n int) (answer, error) {
	own, err := sql.Open(os.Args[1], url(""))
	if err != nil {
		return nil, err
	}
	defer own.Close()
	own.SetMaxOpenConns(1)
	for i := 0; i < n; i++ {
		if _, err = all(own.QueryContext(ctx, "SELECT 1")); err != nil {
			return nil, err
		}
	}
	return ok(nil)
}

func sqlstate(err error) string {
	var a *pq.Error
	var b *pgconn.PgError
	switch {
	case errors.As(err, &a):
		return string(a.Code)
	case errors.As(err, &b):
		return b.Code
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
	disconnect()
}
