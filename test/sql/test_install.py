"""install.sql and uninstall.sql."""

import os
import re

from schema import install_script, parts
from sessions import ROOT


def uninstall_script():
    with open(os.path.join(ROOT, "sql", "uninstall.sql"), encoding="utf-8") as text:
        return text.read()


def catalogue(session):
    """What is in the schema, with the transaction that wrote it last."""
    return session.rows("""
        SELECT 'f', proname::text, xmin::text FROM pg_proc WHERE pronamespace = 'queue'::regnamespace
        UNION ALL
        SELECT 'r', relname::text, xmin::text FROM pg_class WHERE relnamespace = 'queue'::regnamespace
        UNION ALL SELECT 'n', nspname::text, xmin::text FROM pg_namespace WHERE nspname = 'queue'
        ORDER BY 1, 2, 3""")


def test_install_as_ordinary_role(bare):
    assert bare.script(install_script()) == ""
    assert bare.value("SELECT queue.version()") == 1
    bare.create("mail")
    assert bare.push("mail", "1") == [1]


def test_install_again_changes_nothing(db):
    db.create("mail")
    before = catalogue(db)
    assert db.script(install_script()) == ""
    assert catalogue(db) == before
    # nor does it need any right then
    assert db.connect("bob").script(install_script()) == ""
    assert catalogue(db) == before


LATER = r"(?m)^RETURN\b|BEGIN ATOMIC|^\s*MERGE INTO|NULLS NOT DISTINCT|security_invoker|^\s*\w+\.\w+\.\w+ :="


def test_nothing_of_later_versions():
    """PostgreSQL 13 does not know it."""
    for path in parts():
        with open(path, encoding="utf-8") as part:
            assert not re.search(LATER, part.read()), path


def test_install_leaves_search_path(bare):
    bare.rows("SET search_path = public, pg_catalog")
    assert bare.script(install_script()) == ""
    assert bare.value("SHOW search_path") == "public, pg_catalog"
    with bare.conn.transaction():
        assert bare.script(install_script()) == ""
        assert bare.value("SHOW search_path") == "public, pg_catalog"


def test_install_without_right(bare):
    assert "permission denied for database" in bare.connect("bob").script(install_script())


def test_install_into_prepared_schema(bare):
    """A DBA may make the empty schema for a role that cannot create schemas."""
    bare.rows("CREATE SCHEMA queue")
    bare.rows("GRANT CREATE, USAGE ON SCHEMA queue TO bob")
    bob = bare.connect("bob")
    bob.script(install_script())
    assert bob.value("SELECT queue.version()") == 1


def test_install_refuses_foreign_schema(bare):
    bare.rows("CREATE SCHEMA queue")
    bare.rows("CREATE TABLE queue.queues (x int)")
    assert 'schema "queue" exists and is not qbouncer' in bare.script(install_script())


def test_install_into_a_schema_of_somebody_else(bare):
    """Who owns the schema could replace what is installed into it, and what he has put there would be called."""
    root = bare.connect("postgres")
    root.rows("GRANT CREATE ON DATABASE %s TO mallory" % bare.name)
    mallory = bare.connect("mallory")
    mallory.rows("CREATE SCHEMA queue")
    mallory.rows("GRANT CREATE, USAGE ON SCHEMA queue TO PUBLIC")
    for victim in (root, bare):
        assert 'schema "queue" belongs to role "mallory"' in victim.script(install_script())
    root.rows("GRANT CREATE ON SCHEMA public TO mallory")
    mallory.rows("CREATE TABLE public.loot (who text)")
    mallory.rows("GRANT ALL ON public.loot TO PUBLIC")
    mallory.rows("CREATE FUNCTION queue.version() RETURNS int4 LANGUAGE sql AS "
                 "'INSERT INTO public.loot VALUES (current_user); SELECT 0'")
    for victim in (root, bare):
        assert 'schema "queue" belongs to role "mallory"' in victim.script(install_script())
    # nor if the schema is given to somebody who may be trusted
    root.rows("ALTER SCHEMA queue OWNER TO app")
    assert 'schema "queue" belongs to role "mallory"' in root.script(install_script())
    assert mallory.rows("SELECT * FROM public.loot") == []
    mallory.rows("DROP FUNCTION queue.version()")
    mallory.rows("CREATE TYPE queue._taken_jsonb AS (a int)")
    assert "is not qbouncer's" in root.script(install_script())
    mallory.rows("DROP TYPE queue._taken_jsonb")
    assert root.script(install_script()) == ""


def test_install_with_odd_settings(bare):
    """Some functions are made of the text of others."""
    bare.rows("SET quote_all_identifiers = on")
    assert bare.script(install_script()) == ""
    assert bare.value("SHOW quote_all_identifiers") == "on"
    for name in ("take", "pop", "peek", "job"):
        assert bare.column("SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace "
                           "AND proname ~ ('^' || %s || '(_text|_bytea)?$') ORDER BY 1", name) == \
            [name, name + "_bytea", name + "_text"]
    bare.create("b", payload="bytea")
    bare.rows("SELECT queue.push('b', 'x'::bytea)")
    assert bare.column("SELECT payload FROM queue.take_bytea('b')") == [b"x"]
    bare.rows("SELECT queue.grant('b', '{push,take}', '{bob}')")
    bare.rows("SELECT queue.revoke('b', '{push}', '{bob}')")


def test_install_leaves_a_newer_schema(bare):
    bare.rows("CREATE SCHEMA queue")
    bare.rows("CREATE FUNCTION queue.version() RETURNS int4 LANGUAGE sql AS 'SELECT 99'")
    assert bare.script(install_script()) == ""
    assert bare.value("SELECT to_regclass('queue.queues')") is None


def test_two_install_at_once(bare):
    one, two = bare.connect(), bare.connect()
    one.rows("BEGIN")
    assert one.script(install_script()) == ""
    second = two.beside(two.script, install_script())
    bare.until_blocked(two)
    one.rows("COMMIT")
    assert second.result() == ""
    assert bare.value("SELECT queue.version()") == 1


def test_install_with_old_string_syntax(bare):
    bare.rows("SET standard_conforming_strings = off")
    assert bare.script(install_script()) == ""
    bare.create("a\\b'c", retry="linear 10 min")
    bare.push("a\\b'c", "1")
    assert len(bare.take("a\\b'c")) == 1


def test_uninstall(db):
    db.create("mail")
    db.push("mail", "1")
    assert db.script(uninstall_script()) == ""
    assert db.value("SELECT to_regnamespace('queue')") is None
    assert db.script(uninstall_script()) == ""


def test_every_function_pins_search_path(db):
    db.create("mail")
    assert db.column("""SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace
        AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)""") == []
    assert db.column("""SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace
        AND (prosecdef OR NOT has_function_privilege('bob', oid, 'EXECUTE')) ORDER BY 1""") == [
            # of AFTER, dead_queue, KEY and GROUP: one thing each
            "_blocked_1", "_bury", "_ended_1", "_fold_figures", "_follow_1", "_followed", "_free_keys_1", "_goes", "_kept_1",
            "_late_1", "_left_behind", "_look_after", "_look_after_all", "_next_1",
            "_right_changed", "_ring_changes",
            "_route",  # what a publication does
            "_row_changed", "_row_lone", "_row_number",  # triggers of the catalogue
            "_schedules_due",  # whose schedules are due, without what is in them
            "_seek_1",  # of KEY and GROUP, too
            "_stream_changed", "_stream_number", "_stream_right_changed", "_subscription_number",  # triggers of streams
            "_topic_change"]


def test_an_upgrade_gives_nobody_more(db):
    """As a later version would do it: all functions anew, over those of the queues."""
    db.create("mail", max_length=5)
    closed = """SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace
        AND NOT has_function_privilege('bob', oid, 'EXECUTE') ORDER BY 1"""
    before = db.column(closed)
    assert before == ["_blocked_1", "_bury", "_ended_1", "_follow_1", "_followed", "_free_keys_1", "_full_1", "_goes", "_kept_1",
                      "_late_1", "_look_after", "_next_1", "_right_changed", "_ring_changes", "_route", "_row_changed", "_row_lone", "_row_number",
                      "_seek_1",
                      "_stream_changed", "_stream_number", "_stream_right_changed", "_subscription_number",
                      "_topic_change"]
    db.rows("CREATE OR REPLACE FUNCTION queue.version() RETURNS int4 LANGUAGE sql AS 'SELECT 0'")
    assert db.script(install_script()) == ""
    assert db.value("SELECT queue.version()") == 1
    assert db.column(closed) == before


def test_everything_for_others_has_a_comment(db):
    """What \\d+ and \\df+ show of tables, columns and functions, but for those that are the proxy's own."""
    for name, kind in [("mail", "jsonb"), ('Odd "name"', "bytea"), ("it's", "text")]:
        db.create(name, payload=kind)
    db.create("log", kind="stream")
    assert db.column("""
        SELECT r.relname FROM pg_class AS r WHERE r.relnamespace = 'queue'::regnamespace
            AND r.relkind IN ('r', 'v') AND obj_description(r.oid, 'pg_class') IS NULL""") == []
    assert db.column("""
        SELECT r.relname || '.' || a.attname FROM pg_class AS r JOIN pg_attribute AS a ON a.attrelid = r.oid
        WHERE r.relnamespace = 'queue'::regnamespace AND (r.relkind IN ('r', 'v') AND r.relname !~ '^[qab]_(mail|Odd|it)' OR r.relname = 'job_columns')
            AND a.attnum > 0 AND NOT a.attisdropped AND col_description(r.oid, a.attnum) IS NULL""") == []
    # those of all queues are said once
    assert db.column("""
        SELECT r.relname || '.' || a.attname FROM pg_class AS r JOIN pg_attribute AS a ON a.attrelid = r.oid
        WHERE r.relnamespace = 'queue'::regnamespace AND r.relkind IN ('r', 'v') AND r.relname ~ '^[qab]_(mail|Odd|it)' AND a.attnum > 0
            AND NOT a.attisdropped AND NOT EXISTS (SELECT FROM pg_attribute AS c
                WHERE c.attrelid = 'queue.job_columns'::regclass AND c.attname = a.attname)""") == []
    assert db.column("SELECT DISTINCT obj_description(r.oid, 'pg_class') ~ 'job_columns' FROM pg_class AS r "
                     "WHERE r.relnamespace = 'queue'::regnamespace AND r.relkind IN ('r', 'v') AND r.relname ~ '^[qab]_(mail|Odd|it)'") == [True]
    assert db.column("""
        SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'queue'::regnamespace
            AND p.proname !~ '^_' AND obj_description(p.oid, 'pg_proc') IS NULL""") == []
    assert db.value("SELECT obj_description('queue'::regnamespace)")


def test_a_lock_that_anybody_can_hold(bare):
    """Installing does not wait for it for ever."""
    bare.connect("mallory").rows("SELECT pg_advisory_lock(7598543210001)")
    assert bare.script(install_script()) == ""
    assert bare.value("SELECT queue.version()") == 1
