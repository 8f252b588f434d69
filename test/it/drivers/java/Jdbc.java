// pgjdbc. Argument "simple": preferQueryMode=simple.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

public class Jdbc {
    // [producer]
    static void produce(Connection conn, int order) throws SQLException {
        conn.setAutoCommit(false);
        try (PreparedStatement insert = conn.prepareStatement("INSERT INTO orders VALUES (?)");
                PreparedStatement push = conn.prepareStatement("QUEUE PUSH mail ?")) {
            insert.setInt(1, order);
            insert.executeUpdate();
            push.setString(1, "{\"order\": " + order + "}");
            push.executeUpdate();
            conn.commit(); // both, or neither
        } finally {
            conn.setAutoCommit(true);
        }
    }
    // [/producer]

    // [worker]
    // One turn: call it in a loop. False if there was nothing to do for 20 seconds.
    static boolean work(Connection conn) throws SQLException {
        String token, order;
        try (Statement take = conn.createStatement();
                ResultSet job = take.executeQuery("QUEUE TAKE mail WAIT '20s'")) { // executeQuery: it has rows
            if (!job.next())
                return false;
            token = job.getString("token");
            order = job.getString("payload").replaceAll("[^-0-9]+", ""); // or your JSON library
        }
        conn.setAutoCommit(false);
        try (PreparedStatement insert = conn.prepareStatement("INSERT INTO sent VALUES (?)");
                PreparedStatement done = conn.prepareStatement("QUEUE DONE ?")) {
            insert.setInt(1, Integer.parseInt(order));
            insert.executeUpdate();
            done.setString(1, token);
            done.executeUpdate();
            conn.commit(); // the work and DONE commit together, or not at all
        } catch (SQLException | RuntimeException e) { // whatever it was: nobody else gives the job back
            conn.rollback();
            try (PreparedStatement fail = conn.prepareStatement("QUEUE FAIL ? ERROR ?")) {
                fail.setString(1, token);
                fail.setString(2, String.valueOf(e.getMessage()));
                fail.executeUpdate();
                conn.commit();
            } catch (SQLException late) {
                conn.rollback();
                if (!String.valueOf(late.getSQLState()).matches("QB00[12]"))
                    throw late; // else it is not our job any more, or cancelled
            }
        } finally {
            conn.setAutoCommit(true);
        }
        return true;
    }
    // [/worker]

    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    static final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static final Map<String, PreparedStatement> prepared = new HashMap<>();
    static Connection conn;
    static boolean simple;

    static String json(String s) {
        if (s == null)
            return "null";
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray())
            b.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        return b.append('"').toString();
    }

    static Connection connect() throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("QB_HOST") + ":" + System.getenv("QB_PORT") + "/"
                + System.getenv("QB_DB") + (simple ? "?preferQueryMode=simple" : "");
        return DriverManager.getConnection(url, System.getenv("QB_USER"), System.getenv("QB_PASSWORD"));
    }

    static void bind(PreparedStatement s, String[] w, int from) throws SQLException {
        for (int i = from; i < w.length; i++)
            set(s, i - from + 1, w[i]);
    }

    static void set(PreparedStatement s, int i, String field) throws SQLException {
        if (field.startsWith("i:"))
            s.setInt(i, Integer.parseInt(field.substring(2)));
        else if (field.startsWith("s:"))
            s.setString(i, field.substring(2));
        else
            s.setNull(i, Types.VARCHAR);
    }

    static String sql(String text) {
        return text.replaceAll("\\$\\d", "?");
    }

    static String rows(ResultSet r) throws SQLException {
        ResultSetMetaData m = r.getMetaData();
        StringBuilder columns = new StringBuilder(), types = new StringBuilder(), rows = new StringBuilder();
        for (int i = 1; i <= m.getColumnCount(); i++) {
            columns.append(i > 1 ? "," : "").append(json(m.getColumnLabel(i)));
            types.append(i > 1 ? "," : "").append(json(m.getColumnTypeName(i)));
        }
        while (r.next()) {
            rows.append(rows.length() > 0 ? ",[" : "[");
            for (int i = 1; i <= m.getColumnCount(); i++)
                rows.append(i > 1 ? "," : "").append(json(r.getString(i)));
            rows.append("]");
        }
        return "{\"columns\":[" + columns + "],\"types\":[" + types + "],\"rows\":[" + rows + "]}";
    }

    static String answer(String[] w) throws Exception {
        switch (w[0]) {
            case "exec":
                if (w.length == 2)
                    try (Statement s = conn.createStatement()) {
                        return "{\"count\":" + s.executeUpdate(w[1]) + "}";
                    }
                try (PreparedStatement s = conn.prepareStatement(sql(w[1]))) {
                    bind(s, w, 2);
                    return "{\"count\":" + s.executeUpdate() + "}";
                }
            case "query":
                if (w.length == 2)
                    try (Statement s = conn.createStatement(); ResultSet r = s.executeQuery(w[1])) {
                        return rows(r);
                    }
                try (PreparedStatement s = conn.prepareStatement(sql(w[1]))) {
                    bind(s, w, 2);
                    return rows(s.executeQuery());
                }
            case "prepare": {
                if (simple)
                    return null;
                PreparedStatement s = prepared.get(w[1]);
                if (s == null)
                    prepared.put(w[1], s = conn.prepareStatement(sql(w[1])));
                bind(s, w, 2);
                return rows(s.executeQuery());
            }
            case "first":
                if (simple)
                    return null;
                try (Statement s = conn.createStatement()) {
                    s.setMaxRows(1);
                    return rows(s.executeQuery(w[1]));
                }
            case "cursor":
                conn.setAutoCommit(false);
                try (Statement s = conn.createStatement()) {
                    s.setFetchSize(Integer.parseInt(w[2].substring(2)));
                    String got = rows(s.executeQuery(w[1]));
                    conn.commit();
                    return got;
                } catch (SQLException e) {
                    conn.rollback();
                    throw e;
                } finally {
                    conn.setAutoCommit(true);
                }
            case "batch":
                try (PreparedStatement s = conn.prepareStatement(sql(w[1]))) {
                    for (int i = 2; i < w.length; i++) {
                        set(s, 1, w[i]);
                        s.addBatch();
                    }
                    return "{\"counts\":" + Arrays.toString(s.executeBatch()) + "}";
                }
            case "ping":
                return "{\"ok\":" + conn.isValid(20) + "}";
            case "cancel":
                return cancel(w[1]);
            case "timeout":
                try (Statement s = conn.createStatement()) {
                    s.setQueryTimeout(1);
                    return rows(s.executeQuery(w[1]));
                }
            default:
                return control(w);
        }
    }

    static String control(String[] w) throws Exception {
        switch (w[0]) {
            case "begin":
                conn.setAutoCommit(false);
                break;
            case "commit":
                conn.commit();
                conn.setAutoCommit(true);
                break;
            case "rollback":
                conn.rollback();
                conn.setAutoCommit(true);
                break;
            case "reconnect":
                conn.close();
                prepared.clear();
                conn = connect();
                break;
            case "produce":
                produce(conn, Integer.parseInt(w[1]));
                break;
            case "work":
                return "{\"ok\":" + work(conn) + "}";
            default:
                return null;
        }
        return "{\"ok\":true}";
    }

    static String cancel(String sql) throws Exception {
        try (Statement s = conn.createStatement()) {
            Thread other = new Thread(() -> {
                try {
                    in.readLine();
                    s.cancel();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            });
            other.start();
            try {
                return rows(s.executeQuery(sql));
            } finally {
                other.join();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        simple = args.length > 0 && args[0].equals("simple");
        conn = connect();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split("\t", -1);
            String got;
            try {
                got = answer(w);
                if (got == null)
                    got = "{\"skip\":" + json(w[0]) + "}";
            } catch (SQLException e) {
                SQLException first = e;
                while (first.getNextException() != null && first.getSQLState() == null)
                    first = first.getNextException();
                got = "{\"error\":" + json(first.getSQLState()) + ",\"class\":" + json(e.getClass().getSimpleName())
                        + ",\"message\":" + json(e.getMessage()) + "}";
            }
            out.println(got);
        }
        conn.close();
    }
}
