"""What libraries of other languages say to Postgres, by hand: River (Go) and Oban (Elixir), their tables, indexes and
statements as their sources have them, without the library. So what their own programs cost is not in it; nor is what they
win by finishing jobs in batches. Finished jobs stay, as there, until a cleaner comes.
"""

from contenders import PAYLOAD
from contenders.sql import Sql


class _Library(Sql):
    """A table of jobs that have a state. create: its statements."""

    create = ""
    columns = ""   # of a push, and their values
    values = ""

    def fresh(self, rig, poolers):
        rig.psql(self.create, rig.behind(self.database))

    def fill(self, rig, poolers, n):
        rig.psql("INSERT INTO %s (%s) SELECT %s FROM generate_series(1, %d)" % (self.table, self.columns, self.values, n),
                 rig.behind(self.database))

    def push(self, batch):
        return "INSERT INTO %s (%s) VALUES %s" % (self.table, self.columns, ", ".join(["(%s)" % self.values] * batch))

    def script(self, mode):
        return "%s;\n%s \\gset\n%s;\n" % (self.push(1), self.take(1), self.done(1) % ":id")


class River(_Library):
    """JobInsertFast, JobGetAvailable, JobSetStateIfRunning of its driver for Postgres."""

    name = "River's SQL"
    table = "river_job"
    create = """
DROP TABLE IF EXISTS river_job;
DROP TYPE IF EXISTS river_job_state;
CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'retryable', 'running', 'scheduled');
CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available', attempt smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL, attempted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), finalized_at timestamptz,
  scheduled_at timestamptz NOT NULL DEFAULT now(), priority smallint NOT NULL DEFAULT 1, args jsonb NOT NULL, attempted_by text[],
  errors jsonb[], kind text NOT NULL, metadata jsonb NOT NULL DEFAULT '{}', queue text NOT NULL DEFAULT 'default',
  tags varchar(255)[] NOT NULL DEFAULT '{}',
  CONSTRAINT finalized_or_finalized_at_null CHECK ((state IN ('cancelled', 'completed', 'discarded') AND finalized_at IS NOT NULL)
    OR finalized_at IS NULL),
  CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0), CONSTRAINT priority_in_range CHECK (priority BETWEEN 1 AND 4),
  CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128),
  CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128));
CREATE INDEX river_job_kind ON river_job (kind);
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id);
CREATE INDEX river_job_args_index ON river_job USING gin (args);
CREATE INDEX river_job_metadata_index ON river_job USING gin (metadata)"""
    columns = "args, kind, max_attempts, metadata, priority, queue, state"
    values = "'%s', 'job', 25, '{}', 1, 'default', 'available'" % PAYLOAD

    def take(self, batch):
        return ("WITH locked_jobs AS (SELECT * FROM river_job WHERE state = 'available' AND queue = 'default' AND scheduled_at <= now() "
                "ORDER BY priority ASC, scheduled_at ASC, id ASC LIMIT %d FOR UPDATE SKIP LOCKED) "
                "UPDATE river_job SET state = 'running', attempt = river_job.attempt + 1, attempted_at = now(), "
                "attempted_by = array_append(river_job.attempted_by, 'bench') FROM locked_jobs WHERE river_job.id = locked_jobs.id "
                "RETURNING river_job.id, river_job.args, river_job.attempt" % batch)

    def done(self, batch):
        return "UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = ANY ('{%s}') AND state = 'running'"


class Oban(_Library):
    """insert, fetch_jobs and complete_job of its Basic engine."""

    name = "Oban's SQL"
    table = "oban_jobs"
    create = """
DROP TABLE IF EXISTS oban_jobs;
DROP TYPE IF EXISTS oban_job_state;
CREATE TYPE oban_job_state AS ENUM ('available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'default',
  worker text NOT NULL, args jsonb NOT NULL DEFAULT '{}', errors jsonb[] NOT NULL DEFAULT '{}', attempt int NOT NULL DEFAULT 0,
  max_attempts int NOT NULL DEFAULT 20, inserted_at timestamp NOT NULL DEFAULT timezone('UTC', now()),
  scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()), attempted_at timestamp, completed_at timestamp, attempted_by text[],
  discarded_at timestamp, priority int NOT NULL DEFAULT 0, tags text[] DEFAULT '{}', meta jsonb DEFAULT '{}', cancelled_at timestamp,
  CONSTRAINT worker_length CHECK (char_length(worker) > 0 AND char_length(worker) < 128),
  CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128),
  CONSTRAINT attempt_range CHECK (attempt >= 0 AND attempt <= max_attempts), CONSTRAINT positive_max_attempts CHECK (max_attempts > 0),
  CONSTRAINT non_negative_priority CHECK (priority >= 0));
CREATE INDEX oban_jobs_state_queue_priority_scheduled_at_id_index ON oban_jobs (state, queue, priority, scheduled_at, id);
CREATE INDEX oban_jobs_args_index ON oban_jobs USING gin (args);
CREATE INDEX oban_jobs_meta_index ON oban_jobs USING gin (meta)"""
    columns = "args, worker, queue, meta, max_attempts, priority, state, tags"
    values = "'%s', 'Job', 'default', '{}', 20, 0, 'available', '{}'" % PAYLOAD

    def take(self, batch):
        return ("WITH subset AS MATERIALIZED (SELECT id FROM oban_jobs WHERE state = 'available' AND queue = 'default' AND attempt < max_attempts "
                "ORDER BY priority, scheduled_at, id LIMIT %d FOR UPDATE SKIP LOCKED) "
                "UPDATE oban_jobs AS j SET state = 'executing', attempted_at = timezone('UTC', now()), attempted_by = '{bench,1}', "
                "attempt = attempt + 1 FROM subset WHERE j.id = subset.id RETURNING j.id, j.args, j.attempt" % batch)

    def done(self, batch):
        return "UPDATE oban_jobs SET state = 'completed', completed_at = timezone('UTC', now()) WHERE id = ANY ('{%s}')"
