// What the Go programs of the suite share: commands in, answers out. ../README.md has the commands.

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

var input = bufio.NewScanner(os.Stdin)

type answer map[string]interface{}

func ok(err error) (answer, error) { return answer{"ok": true}, err }

func url(more string) string {
	env := os.Getenv
	return fmt.Sprintf("postgres://%s:%s@%s:%s/%s?sslmode=disable%s",
		env("QB_USER"), env("QB_PASSWORD"), env("QB_HOST"), env("QB_PORT"), env("QB_DB"), more)
}

func value(field string) interface{} {
	switch field[0] {
	case 'i':
		n, _ := strconv.Atoi(field[2:])
		return n
	case 's':
		return field[2:]
	}
	return nil
}

func values(fields []string) (out []interface{}) {
	for _, f := range fields {
		out = append(out, value(f))
	}
	return
}

func number(text string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(text, "i:"))
	return n
}


// run answers command by command until the end of the input.
func run(do func(words []string) (answer, error), sqlstate func(error) string) {
	out := json.NewEncoder(os.Stdout)
	for input.Scan() {
		words := strings.Split(input.Text(), "\t")
		got, err := do(words)
		if err != nil {
			got = answer{"error": sqlstate(err), "class": fmt.Sprintf("%T", err), "message": err.Error()}
		} else if got == nil {
			got = answer{"skip": words[0]}
		}
		out.Encode(got)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
