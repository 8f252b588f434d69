"""The drivers of the suite, and what each is expected to report. doc/drivers.md has its table from here.

For:     test_drivers.py, which asserts every word of it; document.py, which writes it down.
Must not know: pytest.
Entry points: DRIVERS, TOOLS, Driver.
"""

import importlib.util
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("QB_DRIVERS") or os.path.join(ROOT, "build", "drivers")  # what was compiled or fetched


class Driver:
    """One row of the table.

    push, done   what it reports of one job pushed, or done: a count, or the tag
    types        does it tell the types of columns?
    prepared     does it prepare statements that are to be used again?
    limited      what a fetch of two rows at a time takes of five jobs: 2 (a portal with a row limit), 5 (it
                 reads all of them), "42601" (it makes a DECLARE CURSOR of it), None (it has no such thing)
    batch        does it send several executions at once?
    pool         does it bring a pool?
    cancel       what its way of cancelling makes of a TAKE that waits; None: it has none
    timeout      the same for its time-out
    after        what becomes of the connection then: it "goes on"; the driver has "closed" it; the pool has it
                 "replaced" when it is next asked for; it "must be closed",
                 and waits until it is; it is "blocked": the wait goes on, and what is asked next waits behind it
    ping         has it a way to ask whether the connection lives?
    begin        does it send BEGIN before a statement by itself?
    scram        can it log in by SCRAM?
    aborts       does it leave a failed transaction to its user?
    varying      what of its own words is different in each run: a pattern
    binary, stream  further ways to get rows"""

    def __init__(self, name, language, source, push=1, done=1, types=True, prepared=False, limited=None, batch=False,
                 pool=False, cancel=None, timeout=None, after="", ping=False, begin=False, binary=False, stream=False,
                 transactions=True, scram=True, aborts=True, varying=None, example=True, argument=None, note=""):
        self.name = name
        self.language = language
        self.source = os.path.join(HERE, source)
        self.push, self.done, self.types, self.prepared = push, done, types, prepared
        self.limited, self.batch, self.pool, self.cancel = limited, batch, pool, cancel
        self.timeout, self.after, self.ping, self.begin = timeout, after, ping, begin
        self.binary, self.stream, self.transactions = binary, stream, transactions
        self.scram, self.aborts, self.varying = scram, aborts, varying
        self.example, self.argument, self.note = example, argument, note

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def missing(self):
        """Why it can't be tested here; None if it can."""
        raise NotImplementedError

    def arguments(self):
        return [self.argument] if self.argument else []


class Python(Driver):
    def __init__(self, name, source, modules, **more):
        super().__init__(name, "Python", os.path.join("python", source), **more)
        self.modules = modules

    def command(self):
        return ["/usr/bin/python3", self.source] + self.arguments()

    def missing(self):
        gone = [m for m in self.modules if importlib.util.find_spec(m) is None]
        return "no module " + ", ".join(gone) if gone else None


class Node(Driver):
    def __init__(self, name, source, **more):
        super().__init__(name, "Node", os.path.join("node", source + ".js"), **more)
        self.modules = os.path.join(BUILD, "node", "node_modules")
        self.module = "drizzle-orm" if source == "drizzle" else source

    def command(self):
        return ["node", self.source]

    def environment(self):
        return {"NODE_PATH": self.modules}

    def missing(self):
        if not shutil.which("node"):
            return "no node"
        return None if os.path.isdir(os.path.join(self.modules, self.module)) else "no module " + self.module


class Java(Driver):
    jar = "/usr/share/java/postgresql.jar"

    def __init__(self, name, **more):
        super().__init__(name, "Java", os.path.join("java", "Jdbc.java"), **more)

    def command(self):
        # short-lived: the fewer threads and compilers the sooner it is there
        return ["java", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                os.path.join(BUILD, "java") + ":" + self.jar, "Jdbc"] + self.arguments()

    def missing(self):
        if not shutil.which("java") or not os.path.exists(self.jar):
            return "no java, or no " + self.jar
        return None if os.path.exists(os.path.join(BUILD, "java", "Jdbc.class")) else "not compiled"


class Compiled(Driver):
    """program: in the build directory."""

    def __init__(self, name, language, source, program, **more):
        super().__init__(name, language, source, **more)
        self.program = os.path.join(BUILD, program)

    def command(self):
        return [self.program] + self.arguments()

    def missing(self):
        return None if os.access(self.program, os.X_OK) else "not compiled"


class Script(Driver):
    """probe: what the interpreter has to know, as arguments of it."""

    def __init__(self, name, language, source, interpreter, probe, **more):
        super().__init__(name, language, source, **more)
        self.interpreter, self.probe = interpreter, probe

    def command(self):
        return [self.interpreter, self.source] + self.arguments()

    def missing(self):
        if not shutil.which(self.interpreter):
            return "no " + self.interpreter
        done = subprocess.run([self.interpreter] + self.probe, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False)
        return None if done.returncode == 0 else "no module: " + " ".join(self.probe)


class Tool(Driver):
    """Has no program: it runs scripts of its own, in tests of its own (test_pgbench.py)."""

    def __init__(self, name, language, program, argument, **more):
        super().__init__(name, language, program, example=False, argument=argument, push=None, **more)
        self.program = program

    def missing(self):
        return None if shutil.which(self.program) else "no " + self.program


TOOLS = [
    Tool("pgbench, simple mode", "scripts", "pgbench", "simple"),
    Tool("pgbench, extended mode", "scripts", "pgbench", "extended", batch=True),
    Tool("pgbench, prepared mode", "scripts", "pgbench", "prepared", batch=True, prepared=True),
]

DRIVERS = [
    Script("psql", "SQL", "psql/psql.py", "/usr/bin/python3", ["-c", "import shutil; shutil.which('psql') or exit(1)"],
           types=False, limited=5, batch=True, cancel="57014", stream=True),
    Python("psycopg 3", "psycopg3.py", ["psycopg", "psycopg_pool"], prepared=True, limited="42601", batch=True,
           pool=True, cancel="57014", begin=True, binary=True, stream=True),
    Python("psycopg 3, autocommit", "psycopg3.py", ["psycopg", "psycopg_pool"], argument="autocommit", prepared=True,
           limited="42601", batch=True, pool=True, cancel="57014", binary=True, stream=True, example=False),
    Python("psycopg 3, async", "psycopg3_async.py", ["psycopg"], prepared=True, limited="42601", batch=True,
           cancel="57014", timeout="timeout", after="must be closed", begin=True),
    Python("psycopg2", "psycopg2_.py", ["psycopg2"], limited="42601", batch=True, pool=True, cancel="57014",
           begin=True),
    Python("asyncpg", "asyncpg_.py", ["asyncpg"], push="INSERT 0 1", done="UPDATE 1", prepared=True, limited=2,
           batch=True, pool=True, cancel="cancelled", timeout="timeout", after="goes on"),
    Python("pg8000", "pg8000_.py", ["pg8000"], limited=5, batch=True, begin=True, prepared=True,
           scram=False),
    Python("aiopg", "aiopg_.py", ["aiopg", "async_timeout"], pool=True, timeout="timeout", after="closed", transactions=True),
    Python("SQLAlchemy (psycopg2)", "sqlalchemy_.py", ["sqlalchemy", "psycopg2"], limited="42601", pool=True, batch=True,
           cancel="57014", begin=True, varying=rb"c_[0-9a-f]+_\d"),
    Python("Django (psycopg2)", "django_.py", ["django", "psycopg2"], limited=5, batch=True, cancel="57014",
           varying=rb"_django_curs_\d+"),
    Python("psqlODBC (pyodbc)", "odbc.py", ["pyodbc"], types=False, limited=5,
           cancel="57014", batch=True, prepared=True, aborts=False,
           varying=rb"_PLAN0x[0-9a-f]+|_EXEC_SVP_0x[0-9a-f]+"),
    Node("pg", "pg", prepared=True, limited=2, pool=True, timeout="timeout", after="blocked"),
    Node("postgres", "postgres", prepared=True, limited=2, batch=True, pool=True, cancel="57014", stream=True,
         varying=rb"[a-z0-9]{10,16}(?=\0)"),
    Node("knex", "knex", pool=True, timeout="timeout", after="replaced"),
    Node("Sequelize", "sequelize", types=False, pool=True, ping=True),
    Node("TypeORM", "typeorm", types=False, pool=True),
    Node("Drizzle", "drizzle", pool=True),
    Node("Kysely", "kysely", types=False, pool=True),
    Java("pgjdbc", prepared=True, limited=2, batch=True, cancel="57014", timeout="57014", after="goes on", ping=True),
    Java("pgjdbc, simple mode", argument="simple", limited=5, batch=True, cancel="57014", timeout="57014",
         after="goes on", ping=True, example=False),
    Compiled("lib/pq (database/sql)", "Go", "go/sql.go", "go/sql", argument="postgres", prepared=True, pool=True,
             cancel="57014", timeout="57014", after="closed", ping=True),
    Compiled("pgx (database/sql)", "Go", "go/sql.go", "go/sql", argument="pgx", prepared=True, pool=True,
             cancel="cancelled", timeout="timeout", after="closed", ping=True, example=False),
    Compiled("pgx", "Go", "go/pgx.go", "go/pgx", prepared=True, batch=True, pool=True, cancel="cancelled",
             timeout="timeout", after="closed", ping=True),
    Script("ruby-pg", "Ruby", "ruby/pg.rb", "/usr/bin/ruby", ["-e", "require 'pg'"], prepared=True, cancel="57014",
           ping=True, stream=True),
    Script("ActiveRecord", "Ruby", "ruby/active_record.rb", "/usr/bin/ruby", ["-e", "require 'active_record'"],
           types=False, prepared=True, pool=True, cancel="57014", ping=True),
    Script("DBD::Pg", "Perl", "perl/dbd_pg.pl", "/usr/bin/perl", ["-MDBD::Pg", "-e", "1"], prepared=True, cancel="57014",
           ping=True, push="1", done="1", varying=rb"dbdpg_p\d+"),
    Script("PDO", "PHP", "php/pdo.php", "/usr/bin/php", ["-r", "exit(extension_loaded('pdo_pgsql') ? 0 : 1);"],
           prepared=True, limited="42601"),
    Script("PHP pgsql", "PHP", "php/pgsql.php", "/usr/bin/php", ["-r", "exit(extension_loaded('pgsql') ? 0 : 1);"],
           prepared=True, cancel="cancelled", ping=True, example=False),
    Script("Pgtcl", "Tcl", "tcl/pgtcl.tcl", "/usr/bin/tclsh", ["/dev/null"]),
    Compiled("tokio-postgres", "Rust", "rust/src/main.rs", "rust/target/debug/driver", prepared=True, limited=2,
             batch=True, cancel="57014", timeout="timeout", after="blocked"),
    Compiled("libpq", "C", "c/libpq.c", "c/libpq", prepared=True, batch=True, cancel="57014", binary=True, stream=True),
    Compiled("libpqxx", "C++", "c/pqxx.cc", "c/pqxx", prepared=True, cancel="57014",
             aborts=False),
]
