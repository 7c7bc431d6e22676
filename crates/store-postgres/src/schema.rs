//! The schema: versioned migrations, and functions checked by their hash.
//!
//! Everything happens in one transaction under a lock of its own, so that processes that start together do it once.
//! A schema that a newer version made is used if that version said that this one may, and refused otherwise. Functions
//! that users call live in a schema with a version in its name, so that two versions of the program run side by side.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tidegate_core::codes;
use tidegate_pg::{Address, Schema};
use tidegate_store::{Error, Result};
use tokio_postgres::Client;

use crate::error::{OrStore, is_in_the_way};
use crate::options::PgOptions;
use crate::statements::in_schema;

/// A migration: its name, its text, and the oldest version that can work with the schema it leaves behind.
struct Migration {
    name: &'static str,
    text: &'static str,
    readable_from: i32,
}

/// In order; the version of a schema is how many of them it has had.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_init", text: include_str!("../migrations/0001_init.sql"), readable_from: 1 },
    Migration { name: "0002_lean", text: include_str!("../migrations/0002_lean.sql"), readable_from: 1 },
    Migration { name: "0003_marks", text: include_str!("../migrations/0003_marks.sql"), readable_from: 3 },
    Migration { name: "0004_fence", text: include_str!("../migrations/0004_fence.sql"), readable_from: 4 },
    Migration {
        name: "0005_schedules",
        text: include_str!("../migrations/0005_schedules.sql"),
        readable_from: 5,
    },
    // Its own number: no older program knows a blocked job from a ready one.
    Migration {
        name: "0006_dependencies",
        text: include_str!("../migrations/0006_dependencies.sql"),
        readable_from: 6,
    },
    Migration {
        name: "0007_registry",
        text: include_str!("../migrations/0007_registry.sql"),
        readable_from: 7,
    },
    Migration {
        name: "0008_letters",
        text: include_str!("../migrations/0008_letters.sql"),
        readable_from: 7,
    },
    Migration { name: "0009_untold", text: include_str!("../migrations/0009_untold.sql"), readable_from: 9 },
    Migration {
        name: "0010_finished",
        text: include_str!("../migrations/0010_finished.sql"),
        readable_from: 10,
    },
    // Its own number: its log says more of admissions than an older program can read.
    Migration { name: "0011_room", text: include_str!("../migrations/0011_room.sql"), readable_from: 11 },
];

/// Version of the schema that this program makes.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// The migration from which on `head` says which versions may write.
const FENCED_FROM: usize = 4;

/// How often migrations are tried, and how long everybody else works in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// For each migration: it may take as long as it takes, but whoever is gone or stands still in the middle of it holds nobody up for long.
/// (The last is not to be had everywhere.)
const SETTINGS: &str = "SET LOCAL client_min_messages = warning;
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '10s';
    SET LOCAL tcp_user_timeout = '10s'; SET LOCAL tcp_keepalives_idle = 10;
    SET LOCAL tcp_keepalives_interval = 5; SET LOCAL tcp_keepalives_count = 3;
    DO $$ BEGIN
        SET LOCAL client_connection_check_interval = '1s';
    EXCEPTION WHEN OTHERS THEN NULL;
    END $$";

/// What no migration that is done needs any more, by name. It only costs time, and it cannot be dropped without keeping everybody out of its
/// table, so it goes at a start where nobody is in the way of that, for instance who makes a dump.
const LEFTOVERS: &[(&str, &str)] = &[("done_by_queue", "DROP INDEX IF EXISTS tidegate.done_by_queue")];

/// Functions: the schema's suffix, the name, the text.
const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("_v1", "enqueue", include_str!("../functions/v1_enqueue.sql")),
    ("", "enqueue", include_str!("../functions/enqueue.sql")),
];

/// Bookkeeping of the migrations themselves.
const LEDGER: &str = "CREATE TABLE IF NOT EXISTS tidegate.migrations (
    version       integer PRIMARY KEY,
    name          text NOT NULL,
    readable_from integer NOT NULL,
    at            timestamptz NOT NULL DEFAULT now()
)";

/// Hash of an installed function.
const INSTALLED: &str = "SELECT encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex') FROM pg_proc AS p
    JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = $1 AND p.proname = $2";

/// Something that a migration does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// The statements.
    pub sql: String,
}

/// Brings the schema up to date, or only says what that would take.
pub async fn migrate(url: &str, options: PgOptions, dry_run: bool) -> Result<Vec<Step>> {
    let (address, options) = options.reach(url)?;
    migrate_at(&address, &options, dry_run).await
}

pub(crate) async fn migrate_at(address: &Address, options: &PgOptions, dry_run: bool) -> Result<Vec<Step>> {
    let (client, _work) = address.open(None).await.or_store()?;
    let left = leftovers(&client, options).await?;
    let mut steps = in_transaction(&client, options, dry_run).await?;
    let kept = if dry_run { vec![] } else { clear_away(&client, options).await };
    steps.extend(left.into_iter().filter(|step| !kept.contains(&step.name)));
    Ok(steps)
}

/// Refuses a schema that is missing, older, or too new.
pub(crate) async fn check(address: &Address, options: &PgOptions) -> Result<()> {
    let (client, _work) = address.open(None).await.or_store()?;
    let steps = in_transaction(&client, options, true).await?;
    if steps.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = steps.iter().map(|s| s.name.as_str()).collect();
    let detail = format!("the schema is not up to date: {} to do ({})", steps.len(), names.join(", "));
    Err(Error::new(codes::STORE_FAILED, detail))
}

/// Tries again if others were in the way: a migration that makes everybody wait may be what the server ends to untangle them.
async fn in_transaction(client: &Client, options: &PgOptions, dry_run: bool) -> Result<Vec<Step>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let done = try_in_transaction(client, options, dry_run).await;
        let Err(error) = done else { return done };
        // A connection that is gone has rolled back by itself.
        let _ = client.batch_execute("ROLLBACK").await;
        if tries == TRIES || !is_in_the_way(&error) {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn try_in_transaction(client: &Client, options: &PgOptions, dry_run: bool) -> Result<Vec<Step>> {
    client.batch_execute(&format!("BEGIN; {SETTINGS}")).await.or_store()?;
    take_turn(client, options, dry_run).await?;
    client.batch_execute("SET LOCAL lock_timeout = '5s'").await.or_store()?;
    let steps = plan(client, options).await?;
    if dry_run {
        client.batch_execute("ROLLBACK").await.or_store()?;
        return Ok(steps);
    }
    for step in &steps {
        client.batch_execute(&step.sql).await.or_store()?;
    }
    client.batch_execute("COMMIT").await.or_store()?;
    Ok(steps)
}

/// Who starts together waits until the first has migrated; who only looks does not wait for long.
async fn take_turn(client: &Client, options: &PgOptions, dry_run: bool) -> Result<()> {
    // The same number for everybody who migrates the same schema.
    let lock = options.schema.lock();
    let row = client.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&lock]).await.or_store()?;
    if row.try_get(0).or_store()? {
        return Ok(());
    }
    let longest = if dry_run { "15s" } else { "10min" };
    tracing::info!("Another process migrates the schema; it is waited for, at most {longest}.");
    client.batch_execute(&format!("SET LOCAL lock_timeout = '{longest}'")).await.or_store()?;
    let waited = client.query("SELECT pg_advisory_xact_lock($1)", &[&lock]).await.or_store();
    waited.map(drop).map_err(|error| {
        if !is_in_the_way(&error) {
            return error;
        }
        let detail = format!("another process has been migrating the schema for more than {longest}");
        Error::new(codes::STORE_FAILED, detail)
    })
}

/// What is there of [`LEFTOVERS`].
async fn leftovers(client: &Client, options: &PgOptions) -> Result<Vec<Step>> {
    let mut steps = vec![];
    for (name, sql) in LEFTOVERS {
        let relation = format!("{}.{name}", options.schema.quoted());
        let row = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&relation]).await.or_store()?;
        if row.try_get(0).or_store()? {
            steps.push(Step { name: format!("drop {name}"), sql: in_schema(sql, &options.schema) });
        }
    }
    Ok(steps)
}

/// Drops what nothing uses any more. What could not be dropped, by name of its step: nothing depends on that.
async fn clear_away(client: &Client, options: &PgOptions) -> Vec<String> {
    let mut kept = vec![];
    for (name, sql) in LEFTOVERS {
        let sql = in_schema(sql, &options.schema);
        // While it waits, whoever wants to read or write waits behind it.
        let drop = format!("BEGIN; {SETTINGS}; SET LOCAL lock_timeout = '100ms'; {sql}; COMMIT");
        if let Err(error) = client.batch_execute(&drop).await.or_store() {
            let _ = client.batch_execute("ROLLBACK").await;
            tracing::warn!(
                "{name} is not needed any more and could not be dropped; the next start tries again: {error}"
            );
            kept.push(format!("drop {name}"));
        }
    }
    kept
}

/// What is to be done.
async fn plan(client: &Client, options: &PgOptions) -> Result<Vec<Step>> {
    let schema = &options.schema;
    let version = version(client, schema).await?;
    let mut steps = vec![];
    let mut step = |name: String, text: &str| {
        steps.push(Step { name, sql: in_schema(text, schema) });
    };
    if version == 0 {
        // Somebody who may not create schemas can be given empty ones.
        for name in [schema.name().to_owned(), format!("{}_v1", schema.name())] {
            let quoted = format!("\"{name}\"");
            let row = client.query_one("SELECT to_regnamespace($1) IS NULL", &[&quoted]).await.or_store()?;
            if row.try_get(0).or_store()? {
                step(format!("schema {name}"), &format!("CREATE SCHEMA \"{name}\""));
            }
        }
        step("ledger".into(), LEDGER);
    }
    for (i, migration) in MIGRATIONS.iter().enumerate().skip(version as usize) {
        let (number, Migration { name, text, readable_from }) = (i + 1, migration);
        // Older processes that still run are refused from here on.
        let fence = if number < FENCED_FROM {
            String::new()
        } else {
            format!(
                ";\nUPDATE tidegate.head SET readable_from = {readable_from} WHERE readable_from < {readable_from}"
            )
        };
        let note = format!(
            "INSERT INTO tidegate.migrations (version, name, readable_from) VALUES ({number}, '{name}', {readable_from})"
        );
        step((*name).into(), &format!("{text};\n{note}{fence}"));
    }
    for (suffix, name, text) in FUNCTIONS {
        let text = in_schema(text, schema)
            .replace("pg_notify('tidegate'", &format!("pg_notify('{}'", schema.name()));
        let wanted = body_hash(&text);
        let of_schema = format!("{}{suffix}", schema.name());
        let found = client.query(INSTALLED, &[&of_schema, name]).await.or_store()?;
        let same = found.len() == 1 && found[0].try_get::<_, String>(0).or_store()? == wanted;
        if !same {
            steps.push(Step { name: format!("function {of_schema}.{name}"), sql: text });
        }
    }
    Ok(steps)
}

/// Version of the schema, 0 if there is none; refuses one that is too new.
async fn version(client: &Client, schema: &Schema) -> Result<i32> {
    let ledger = format!("{}.migrations", schema.quoted());
    let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&ledger]).await.or_store()?;
    if !exists.try_get::<_, bool>(0).or_store()? {
        return Ok(0);
    }
    let text = format!("SELECT version, readable_from FROM {ledger} ORDER BY version DESC LIMIT 1");
    let Some(row) = client.query_opt(&text, &[]).await.or_store()? else { return Ok(0) };
    let (found, readable_from): (i32, i32) = (row.try_get(0).or_store()?, row.try_get(1).or_store()?);
    may_use(readable_from)?;
    Ok(found.min(VERSION))
}

/// Refuses a schema that this version is too old for.
pub(crate) fn may_use(readable_from: i32) -> Result<()> {
    if readable_from <= VERSION {
        return Ok(());
    }
    let detail = format!(
        "the schema can be used from version {readable_from} on; this program knows versions up to {VERSION}"
    );
    Err(Error::new(codes::STORE_NEWER, detail))
}

/// Hash of what Postgres keeps of a function: what stands between the dollars.
fn body_hash(text: &str) -> String {
    let body = text.split("$$").nth(1).unwrap_or_default();
    Sha256::digest(body).iter().fold(String::new(), |hash, b| hash + &format!("{b:02x}"))
}
