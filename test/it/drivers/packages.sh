#!/bin/sh
# Prints the Debian packages of the suite: drivers, and of their languages what is not there yet.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

echo python3-psycopg python3-psycopg-pool python3-psycopg2 python3-asyncpg python3-pg8000 python3-aiopg \
	python3-async-timeout python3-sqlalchemy python3-django python3-pyodbc odbc-postgresql \
	libpostgresql-jdbc-java golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev \
	cargo rustc librust-tokio-postgres-dev librust-futures-util-dev ruby ruby-pg ruby-activerecord libdbd-pg-perl \
	php-cli php-pgsql tcl libpgtcl g++ libpqxx-dev libpq-dev
# a compiler alone, where there is no JDK: half of its size
have java || echo default-jre-headless
have javac || echo ecj
have node || echo nodejs
# node-pg: where npm cannot fetch
have npm || echo npm node-pg
