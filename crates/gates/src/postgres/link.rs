//! A connection with the statements of an operation, two round trips each: lock, and write.

use std::future::Future;
use std::time::Duration;

use tidegate_core::gates::Micros;
use tidegate_pg::{Address, NotConnected, Schema, Work};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::lanes::LaneKey;
use super::options::PgGatesOptions;
use super::statements::{self as sql, in_schema};
use crate::GatesError;

/// From the driver's errors to ours.
pub(super) fn unreachable(error: tokio_postgres::Error) -> GatesError {
    GatesError::Unreachable(Box::new(error))
}

/// A server that hangs neither answers nor closes the connection, and its own time-outs hang with it.
pub(super) async fn within<R>(
    patience: Duration,
    answer: impl Future<Output = Result<R, tokio_postgres::Error>>,
) -> Result<R, GatesError> {
    match tokio::time::timeout(patience, answer).await {
        Ok(answer) => answer.map_err(unreachable),
        Err(late) => Err(GatesError::Unreachable(Box::new(late))),
    }
}

impl From<NotConnected> for GatesError {
    fn from(error: NotConnected) -> Self {
        Self::Unreachable(Box::new(error))
    }
}

/// A connection.
pub(super) struct Link {
    client: Client,
    /// Longest time for an answer.
    patience: Duration,
    schema: Schema,
    begin: String,
    lock: Statement,
    head: Statement,
    write: Statement,
    notify: Statement,
    _work: Work,
}

/// A partition's row, locked.
pub(super) struct Locked {
    pub(super) marks: Vec<i64>,
    pub(super) layout: i64,
    /// None if the caller has it.
    pub(super) state: Option<Vec<u8>>,
}

/// What is written.
pub(super) struct Written<'a> {
    pub(super) mark: i64,
    pub(super) layout: i64,
    pub(super) state: &'a [u8],
    pub(super) used_at: Micros,
    pub(super) due_at: Option<Micros>,
    pub(super) usage: [i32; 4],
    pub(super) channel: &'a str,
    pub(super) payloads: &'a [String],
}

impl Link {
    pub(super) async fn open(address: &Address, options: &PgGatesOptions) -> Result<Self, GatesError> {
        let (client, work) = address.open(None).await?;
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED;".to_owned();
        if options.pooled {
            begin += &options.settings(true);
        } else {
            within(options.patience, client.batch_execute(&options.settings(false))).await?;
        }
        let text = |text| in_schema(text, &options.schema);
        let [lock, head, write, notify] =
            [sql::PARTITIONS_LOCK, sql::DOMAINS_HEAD, sql::PARTITIONS_WRITE, sql::WAKE_NOTIFY].map(text);
        let prepared = async {
            tokio::try_join!(
                biased;
                client.prepare(&lock),
                client.prepare(&head),
                client.prepare(&write),
                client.prepare(&notify),
            )
        };
        let (lock, head, write, notify) = within(options.patience, prepared).await?;
        let (patience, schema) = (options.patience, options.schema.clone());
        Ok(Self { client, patience, schema, begin, lock, head, write, notify, _work: work })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Begins a transaction, locks a partition, and then reads the domain's version and the clock: one round trip.
    pub(super) async fn lock(
        &self,
        key: &LaneKey,
        known: i64,
    ) -> Result<(Option<Locked>, Option<(i64, Micros)>), tokio_postgres::Error> {
        let (domain, part) = (&*key.domain, &*key.part);
        let params: [&(dyn ToSql + Sync); 3] = [&domain, &part, &known];
        let of_domain: [&(dyn ToSql + Sync); 1] = [&domain];
        let (began, locked, head) = tokio::join!(
            biased;
            self.client.batch_execute(&self.begin),
            self.client.query_opt(&self.lock, &params),
            self.client.query_opt(&self.head, &of_domain),
        );
        began?;
        let locked = match locked? {
            Some(row) => {
                Some(Locked { marks: row.try_get(0)?, layout: row.try_get(1)?, state: row.try_get(2)? })
            }
            None => None,
        };
        let head = head?.map(|row| Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?)));
        Ok((locked, head.transpose()?))
    }

    /// Writes, wakes and commits: one round trip. After an error nobody knows whether it was done.
    pub(super) async fn write(&self, key: &LaneKey, new: Written<'_>) -> Result<(), GatesError> {
        let (domain, part) = (&*key.domain, &*key.part);
        let [keys, leases, quarantined, places] = &new.usage;
        let params: [&(dyn ToSql + Sync); 11] = [
            &domain,
            &part,
            &new.mark,
            &new.layout,
            &new.state,
            &new.used_at,
            &new.due_at,
            keys,
            leases,
            quarantined,
            places,
        ];
        let told: [&(dyn ToSql + Sync); 2] = [&new.channel, &new.payloads];
        let tell = async {
            match new.payloads {
                [] => Ok(Vec::new()),
                _ => self.client.query(&self.notify, &told).await,
            }
        };
        let (written, told, committed) = tokio::join!(
            biased;
            self.client.execute(&self.write, &params),
            tell,
            self.client.batch_execute("COMMIT"),
        );
        // After a failed statement the server answers COMMIT with a rollback, and no error.
        let count = written.map_err(unreachable)?;
        told.map_err(unreachable)?;
        committed.map_err(unreachable)?;
        if count == 1 { Ok(()) } else { Err(GatesError::Corrupt("a locked row is not there".into())) }
    }

    pub(super) async fn roll_back(&self) -> Result<(), GatesError> {
        within(self.patience, self.client.batch_execute("ROLLBACK")).await
    }

    pub(super) async fn begin(&self) -> Result<(), GatesError> {
        within(self.patience, self.client.batch_execute(&self.begin)).await
    }

    pub(super) async fn commit(&self) -> Result<(), GatesError> {
        within(self.patience, self.client.batch_execute("COMMIT")).await
    }

    /// Reads rows with a statement that is not prepared.
    pub(super) async fn query(
        &self,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, GatesError> {
        within(self.patience, self.client.query(&in_schema(text, &self.schema), params)).await
    }

    /// Reads a row that is there.
    pub(super) async fn one(&self, text: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Row, GatesError> {
        within(self.patience, self.client.query_one(&in_schema(text, &self.schema), params)).await
    }

    /// Reads a row that may be there.
    pub(super) async fn opt(
        &self,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, GatesError> {
        within(self.patience, self.client.query_opt(&in_schema(text, &self.schema), params)).await
    }

    /// Writes rows; says how many.
    pub(super) async fn execute(
        &self,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, GatesError> {
        within(self.patience, self.client.execute(&in_schema(text, &self.schema), params)).await
    }
}
