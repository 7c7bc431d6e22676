//! The tables: made where they are missing, under the lock that everybody takes who changes the store's schema.

use tidegate_pg::{Address, Schema};
use tokio_postgres::Client;

use super::link::unreachable;
use super::statements::{SCHEMA_CREATE, SCHEMA_EXISTS, in_schema};
use crate::GatesError;

/// Makes the tables unless they are there.
pub(super) async fn ensure(address: &Address, schema: &Schema) -> Result<(), GatesError> {
    let (client, _work) = address.open(None).await?;
    if exists(&client, schema).await? {
        return Ok(());
    }
    let begin = "BEGIN; SET LOCAL lock_timeout = 15000; SET LOCAL client_min_messages = warning";
    client.batch_execute(begin).await.map_err(unreachable)?;
    // The same number as the store's: a schema is not made twice at the same time.
    client.query("SELECT pg_advisory_xact_lock($1)", &[&schema.lock()]).await.map_err(unreachable)?;
    // Somebody who may not create schemas can be given an empty one.
    let there = client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&schema.quoted()]).await;
    if !there.and_then(|row| row.try_get::<_, bool>(0)).map_err(unreachable)? {
        client.batch_execute(&format!("CREATE SCHEMA {}", schema.quoted())).await.map_err(unreachable)?;
    }
    client.batch_execute(&in_schema(SCHEMA_CREATE, schema)).await.map_err(unreachable)?;
    client.batch_execute("COMMIT").await.map_err(unreachable)
}

async fn exists(client: &Client, schema: &Schema) -> Result<bool, GatesError> {
    let last = ["gate_seen", "gate_orders"].map(|table| format!("{}.{table}", schema.quoted()));
    let row = client.query_one(SCHEMA_EXISTS, &[&last.as_slice()]).await.map_err(unreachable)?;
    row.try_get(0).map_err(unreachable)
}
