//! The tables: made where they are missing, under the lock that everybody takes who changes the store's schema.

use std::time::Duration;

use tidegate_pg::Address;
use tokio_postgres::Client;

use super::link::{unreachable, within};
use super::options::PgGatesOptions;
use super::statements::{SCHEMA_CREATE, SCHEMA_EXISTS, in_schema};
use crate::GatesError;

/// How long somebody else may be at the schema.
const LOCKED: Duration = Duration::from_secs(15);

/// Makes the tables unless they are there.
pub(super) async fn ensure(address: &Address, options: &PgGatesOptions) -> Result<(), GatesError> {
    let (client, _work) = address.open(None).await?;
    if exists(&client, options).await? {
        return Ok(());
    }
    let (schema, patience) = (&options.schema, options.patience);
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = {}; SET LOCAL client_min_messages = warning",
        LOCKED.as_millis()
    );
    within(patience, client.batch_execute(&begin)).await?;
    // The same number as the store's: a schema is not made twice at the same time.
    let number = schema.lock();
    within(LOCKED + patience, client.query("SELECT pg_advisory_xact_lock($1)", &[&number])).await?;
    // Somebody who may not create schemas can be given an empty one.
    let name = schema.quoted();
    let there =
        within(patience, client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&name])).await?;
    if !there.try_get::<_, bool>(0).map_err(unreachable)? {
        within(patience, client.batch_execute(&format!("CREATE SCHEMA {name}"))).await?;
    }
    within(LOCKED + patience, client.batch_execute(&in_schema(SCHEMA_CREATE, schema))).await?;
    within(patience, client.batch_execute("COMMIT")).await
}

async fn exists(client: &Client, options: &PgGatesOptions) -> Result<bool, GatesError> {
    let last = ["gate_seen", "gate_orders"].map(|table| format!("{}.{table}", options.schema.quoted()));
    let row = within(options.patience, client.query_one(SCHEMA_EXISTS, &[&last.as_slice()])).await?;
    row.try_get(0).map_err(unreachable)
}
