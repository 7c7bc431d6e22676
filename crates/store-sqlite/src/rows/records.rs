//! Records: small notes beside the jobs.

use rusqlite::params;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::params::{Record, Shelf};

use super::{SqliteRows, sql};
use crate::error::OrStore;

impl SqliteRows {
    /// Keeps a record and forgets expired ones of its shelf.
    pub(crate) fn put_record(&mut self, record: &Record, now: Timestamp) -> Result<()> {
        let shelf = record.shelf.name();
        self.put(sql!("records/expire"), params![shelf, now.0])?;
        let expires = record.expires.map(|at| at.0);
        self.put(sql!("records/put"), params![shelf, record.key, record.body, expires])
    }

    /// The records of a shelf that live, by key.
    pub(crate) fn records(&mut self, shelf: Shelf, now: Timestamp) -> Result<Vec<Record>> {
        let mut statement = self.conn.prepare_cached(sql!("records/all")).or_store()?;
        let most = limits::MAX_RECORDS as i64;
        let rows = statement.query_map(params![shelf.name(), now.0, most], |row| {
            let expires: Option<i64> = row.get(2)?;
            Ok(Record { shelf, key: row.get(0)?, body: row.get(1)?, expires: expires.map(Timestamp) })
        });
        rows.and_then(Iterator::collect).or_store()
    }

    /// Forgets a record. False if there was none.
    pub(crate) fn delete_record(&mut self, shelf: Shelf, key: &str) -> Result<bool> {
        let mut statement = self.conn.prepare_cached(sql!("records/delete")).or_store()?;
        Ok(statement.execute(params![shelf.name(), key]).or_store()? > 0)
    }
}
