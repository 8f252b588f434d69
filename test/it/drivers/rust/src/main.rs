// tokio-postgres.

use futures_util::future;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, Statement};

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

// [producer]
async fn produce(client: &mut Client, order: i32) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    tx.execute("INSERT INTO orders VALUES ($1)", &[&order]).await?;
    tx.execute("QUEUE PUSH mail $1", &[&format!("{{\"order\": {order}}}")]).await?;
    tx.commit().await // both, or neither
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds. Await it to its end: a future
// that is dropped does not cancel the TAKE, and the job goes to nobody.
async fn work(client: &mut Client) -> Result<bool, tokio_postgres::Error> {
    let job = match client.query_opt("QUEUE TAKE mail WAIT '20s'", &[]).await? {
        None => return Ok(false),
        Some(job) => job,
    };
    let token: String = job.get("token");
    let payload: Text = job.get("payload"); // or serde_json::Value, with the feature with-serde_json-1
    let order: i32 = payload.0.replace(|c: char| c != '-' && !c.is_ascii_digit(), "").parse().unwrap();
    if let Err(e) = finish(client, &token, order).await {
        let text = e.as_db_error().map_or(e.to_string(), |e| e.message().to_string());
        if let Err(late) = client.execute("QUEUE FAIL $1 ERROR $2", &[&token, &text]).await {
            if !matches!(late.code().map(|c| c.code()), Some("QB001") | Some("QB002")) {
                return Err(late); // else it is not our job any more, or cancelled
            }
        }
    }
    Ok(true)
}

// The work and DONE commit together, or not at all.
async fn finish(client: &mut Client, token: &String, order: i32) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    tx.execute("INSERT INTO sent VALUES ($1)", &[&order]).await?;
    tx.execute("QUEUE DONE $1", &[token]).await?;
    tx.commit().await
}
// [/worker]

// A value of any of the types that come here, as a text.
struct Text(String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Done<Text> {
        Ok(Text(match *ty {
            Type::INT4 => i32::from_sql(ty, raw)?.to_string(),
            Type::INT8 => i64::from_sql(ty, raw)?.to_string(),
            Type::JSONB => String::from_utf8(raw[1..].to_vec())?,
            Type::TIMESTAMPTZ => i64::from_be_bytes(raw.try_into()?).to_string(),
            _ => String::from_utf8(raw.to_vec())?,
        }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

// A parameter of a command, in the type that the server wants.
#[derive(Debug)]
struct Field(String);

impl ToSql for Field {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Done<IsNull> {
        let text = self.0[2..].to_string();
        match (self.0.as_bytes()[0], ty) {
            (b'n', _) => Ok(IsNull::Yes),
            (_, &Type::INT4) => text.parse::<i32>()?.to_sql(ty, out),
            (_, &Type::INT8) => text.parse::<i64>()?.to_sql(ty, out),
            _ => text.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

fn json(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        if c < ' ' || c == '"' || c == '\\' {
            out += &format!("\\u{:04x}", c as u32);
        } else {
            out.push(c);
        }
    }
    out + "\""
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn all(statement: &Statement, rows: &[Row]) -> String {
    let n = statement.columns().len();
    let row = |r: &Row| list((0..n).map(|i| r.get::<_, Option<Text>>(i).map_or("null".to_string(), |t| json(&t.0))));
    format!(
        "{{\"columns\":{},\"types\":{},\"rows\":{}}}",
        list(statement.columns().iter().map(|c| json(c.name()))),
        list(statement.columns().iter().map(|c| json(c.type_().name()))),
        list(rows.iter().map(row))
    )
}

fn line() -> Option<String> {
    std::io::stdin().lock().lines().next().map(|l| l.unwrap())
}

struct Program {
    client: Client,
    connection: JoinHandle<()>,
    prepared: BTreeMap<String, Statement>,
}

async fn connect() -> Result<Program, tokio_postgres::Error> {
    let env = |name| std::env::var(name).unwrap();
    let to = format!(
        "host={} port={} dbname={} user={} password={}",
        env("QB_HOST"), env("QB_PORT"), env("QB_DB"), env("QB_USER"), env("QB_PASSWORD")
    );
    let (client, connection) = tokio_postgres::connect(&to, NoTls).await?;
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Program { client, connection, prepared: BTreeMap::new() })
}

const OK: &str = "{\"ok\":true}";

impl Program {
    async fn query(&self, sql: &str, fields: &[&(dyn ToSql + Sync)]) -> Result<String, tokio_postgres::Error> {
        let statement = self.client.prepare(sql).await?;
        Ok(all(&statement, &self.client.query(&statement, fields).await?))
    }

    async fn cursor(&mut self, sql: &str, n: i32) -> Result<String, tokio_postgres::Error> {
        let tx = self.client.transaction().await?;
        let statement = tx.prepare(sql).await?;
        let portal = tx.bind(&statement, &[]).await?;
        let mut rows = Vec::new();
        loop {
            let some = tx.query_portal(&portal, n).await?;
            if some.is_empty() {
                break;
            }
            rows.extend(some);
        }
        let got = all(&statement, &rows);
        tx.commit().await?;
        Ok(got)
    }

    async fn cancel(&self, sql: &str) -> Result<String, tokio_postgres::Error> {
        let token = self.client.cancel_token();
        let statement = self.client.prepare(sql).await?;
        let word = async {
            tokio::task::spawn_blocking(line).await.unwrap();
            token.cancel_query(NoTls).await.unwrap();
        };
        let (rows, ()) = future::join(self.client.query(&statement, &[]), word).await;
        Ok(all(&statement, &rows?))
    }

    async fn answer(&mut self, words: &[&str]) -> Result<String, tokio_postgres::Error> {
        let sql = words.get(1).copied().unwrap_or("");
        let fields: Vec<Field> = words.iter().skip(2).map(|w| Field(w.to_string())).collect();
        let values: Vec<&(dyn ToSql + Sync)> = fields.iter().map(|f| f as &(dyn ToSql + Sync)).collect();
        match words[0] {
            "exec" => return Ok(format!("{{\"count\":{}}}", self.client.execute(sql, &values).await?)),
            "query" => return self.query(sql, &values).await,
            "prepare" => {
                if !self.prepared.contains_key(sql) {
                    let statement = self.client.prepare(sql).await?;
                    self.prepared.insert(sql.to_string(), statement);
                }
                let statement = &self.prepared[sql];
                return Ok(all(statement, &self.client.query(statement, &values).await?));
            }
            "begin" | "commit" | "rollback" => self.client.batch_execute(words[0]).await?,
            "cursor" => return self.cursor(sql, words[2][2..].parse().unwrap()).await,
            "cancel" => return self.cancel(sql).await,
            "timeout" => {
                let statement = self.client.prepare(sql).await?;
                let query = self.client.query(&statement, &[]);
                return match tokio::time::timeout(Duration::from_millis(300), query).await {
                    Err(_) => Ok("{\"error\":\"timeout\"}".to_string()),
                    Ok(rows) => Ok(all(&statement, &rows?)),
                };
            }
            "batch" => {
                let statement = self.client.prepare(sql).await?;
                let one: Vec<_> = values.iter().map(|v| [*v]).collect();
                let sent = one.iter().map(|v| self.client.execute(&statement, v));
                for got in future::join_all(sent).await {
                    got?; // pipelined, each in a transaction of its own
                }
            }
            "produce" => produce(&mut self.client, sql.parse().unwrap()).await?,
            "work" => return Ok(format!("{{\"ok\":{}}}", work(&mut self.client).await?)),
            _ => return Ok(format!("{{\"skip\":{}}}", json(words[0]))),
        }
        Ok(OK.to_string())
    }

    async fn close(self) {
        let Program { client, connection, prepared } = self;
        drop(prepared);
        drop(client);
        connection.await.unwrap();
    }
}

async fn run() -> Result<(), tokio_postgres::Error> {
    let mut program = connect().await?;
    while let Some(line) = tokio::task::spawn_blocking(line).await.unwrap() {
        let words: Vec<&str> = line.split('\t').collect();
        if words[0] == "reconnect" {
            program.close().await;
            program = connect().await?;
            println!("{OK}");
            continue;
        }
        match program.answer(&words).await {
            Ok(got) => println!("{got}"),
            Err(e) => println!(
                "{{\"error\":{},\"message\":{}}}",
                e.code().map_or("null".to_string(), |c| json(c.code())),
                json(&e.to_string())
            ),
        }
    }
    program.close().await;
    Ok(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(e) = runtime.block_on(run()) {
        eprintln!("{e}");
        std::process::exit(1);
    }
}
