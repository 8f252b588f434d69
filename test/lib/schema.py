"""The schema of queues as the sources have it.

For:     tests that want it in a database before anything runs there.
Must not know: clusters, the proxy, pytest.
Entry points: parts, install_script, CHECKED.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parts():
    with open(os.path.join(ROOT, "sql", "order"), encoding="utf-8") as order:
        lines = [line.split("#")[0].strip() for line in order]
    return [os.path.join(ROOT, "sql", line) for line in lines if line]


# What each statement that changes a job has to see to (queue._set_due). A constraint would cost each push and each
# take more than an index, so it is there in tests alone; QB_CHECKED=0: nor there, for who counts instructions. Where a
# test moves the time of a job by a statement of its own, "due" follows; lone statements (lone.sql) are none of those.
COLUMN = "\t\t\tdue timestamptz,\n"
LAST = "\t\tREVOKE ALL ON %1$s FROM PUBLIC;\n\t$sql$, tab,"
RIGHT = "CASE state WHEN 'leased' THEN lease_until WHEN 'later' THEN least(run_at, expires_at) WHEN 'ready' THEN expires_at END"
# (later than that: what was due and was not let go, _put_off)
CHECKED = """\t\t\tdue timestamptz CHECK (due IS NOT DISTINCT FROM @due@ OR (@due@ < clock_timestamp() AND due > @due@) IS TRUE)
				CHECK ((ended_at IS NOT NULL) = (state = 'dead')),
""".replace("@due@", RIGHT)
MOVED = """\t\tCREATE TRIGGER tests_move BEFORE INSERT OR UPDATE ON %1$s FOR EACH ROW
			WHEN (current_query() ~* '^[^a-z]*(update queue|insert into queue[.]q_)' AND current_query() !~ 'queue[.]_lone_') EXECUTE FUNCTION queue._tests_move();
"""
FUNCTION = """
CREATE OR REPLACE FUNCTION queue._tests_move() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	NEW.due := queue._due(NEW.state, NEW.lease_until, NEW.run_at, NEW.expires_at);
	NEW.ended_at := CASE WHEN NEW.state = 'dead' THEN coalesce(NEW.ended_at, now()) END;
	RETURN NEW;
END
$$;

"""
BEFORE = "CREATE OR REPLACE FUNCTION queue._create_table("


def install_script():
    """install.sql as the build makes it: the parts, one behind the other."""
    texts = []
    for path in parts():
        with open(path, encoding="utf-8") as part:
            texts.append(part.read())
    script = "".join(texts)
    if os.environ.get("QB_CHECKED") == "0":
        return script
    for text, checked in (COLUMN, CHECKED), (LAST, MOVED + LAST), (BEFORE, FUNCTION + BEFORE):
        assert script.count(text) == 1
        script = script.replace(text, checked)
    return script
