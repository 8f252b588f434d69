#!/bin/sh
# Prints the Debian packages of the suite: drivers, and of their languages what is not there yet.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

echo python3-psycopg python3-psycopg-pool python3-psycopg2 python3-asyncpg python3-pg8000 python3-aiopg \
	python3-async-timeout python3-sqlalchemy python3-django
