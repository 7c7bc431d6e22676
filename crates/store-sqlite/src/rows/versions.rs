//! Retry policies and the history of the registry.

use rusqlite::{OptionalExtension as _, params};
use tidegate_core::policies::Policies;
use tidegate_core::registry::{Outcome, Version, VersionInfo};
use tidegate_store::Result;
use tidegate_store::rows::VersionRows;

use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

impl VersionRows for SqliteRows {
    fn put_policies(&mut self, policies: &Policies) -> Result<()> {
        let body = serde_json::to_string(policies).map_err(|e| corrupt("the policies", e))?;
        self.put(sql!("policies/put"), params![body])
    }

    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()> {
        let wrong = |e| corrupt("a version", e);
        let refused = version.info.outcome == Outcome::Refused;
        let info = serde_json::to_string(&version.info).map_err(wrong)?;
        let document = version.document.as_ref().map(serde_json::to_string).transpose().map_err(wrong)?;
        let number = version.info.number.cast_signed();
        self.put(sql!("versions/add"), params![number, refused, info, document])?;
        self.put(sql!("versions/forget"), params![refused, keep as i64])
    }

    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        let mut statement = self.conn.prepare_cached(sql!("versions/newest")).or_store()?;
        let rows = statement.query_map(params![limit as i64], |row| row.get::<_, String>(0)).or_store()?;
        rows.map(|text| serde_json::from_str(&text.or_store()?).map_err(|e| corrupt("a version", e)))
            .collect()
    }

    fn version(&mut self, number: u64) -> Result<Option<Version>> {
        let mut statement = self.conn.prepare_cached(sql!("versions/get")).or_store()?;
        let texts =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?));
        let found = statement.query_row(params![number.cast_signed()], texts).optional().or_store()?;
        let Some((info, document)) = found else { return Ok(None) };
        let wrong = |e| corrupt("a version", e);
        let document = document.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)?;
        Ok(Some(Version { info: serde_json::from_str(&info).map_err(wrong)?, document }))
    }
}

impl SqliteRows {
    pub(super) fn policies(&mut self) -> Result<Policies> {
        let mut statement = self.conn.prepare_cached(sql!("policies/get")).or_store()?;
        let body: Option<String> = statement.query_row([], |row| row.get(0)).optional().or_store()?;
        let body = body.map(|text| serde_json::from_str(&text)).transpose();
        Ok(body.map_err(|e| corrupt("the policies", e))?.unwrap_or_default())
    }

    pub(super) fn last_version(&mut self) -> Result<u64> {
        let mut statement = self.conn.prepare_cached(sql!("versions/last")).or_store()?;
        statement.query_row([], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).or_store()
    }
}
