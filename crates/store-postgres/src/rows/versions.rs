//! Retry policies and the history of the registry.

use tidegate_core::policies::Policies;
use tidegate_core::registry::{Version, VersionInfo};
use tidegate_store::Result;
use tidegate_store::rows::VersionRows;

use super::gathered::NameWrite;
use super::{PgRows, column};
use crate::error::corrupt;
use crate::statements::Sql;

impl VersionRows for PgRows {
    fn put_policies(&mut self, policies: &Policies) -> Result<()> {
        self.gathered.names.push(NameWrite::Policies(policies.clone()));
        Ok(())
    }

    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()> {
        self.gathered.names.push(NameWrite::Version(Box::new(version.clone()), keep));
        Ok(())
    }

    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.send_gathered()?;
        let rows = self.query(Sql::VersionsNewest, &[&(limit as i64)])?;
        rows.iter()
            .map(|row| serde_json::from_str(column(row, 0)?).map_err(|e| corrupt("a version", e)))
            .collect()
    }

    fn version(&mut self, number: u64) -> Result<Option<Version>> {
        self.send_gathered()?;
        let rows = self.query(Sql::VersionsGet, &[&number.cast_signed()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let wrong = |e| corrupt("a version", e);
        let document: Option<&str> = column(row, 1)?;
        let document = document.map(serde_json::from_str).transpose().map_err(wrong)?;
        Ok(Some(Version { info: serde_json::from_str(column(row, 0)?).map_err(wrong)?, document }))
    }
}

impl PgRows {
    pub(super) fn policies(&mut self) -> Result<Policies> {
        let rows = self.query(Sql::PoliciesGet, &[])?;
        let Some(row) = rows.first() else { return Ok(Policies::default()) };
        serde_json::from_str(column(row, 0)?).map_err(|e| corrupt("the policies", e))
    }

    pub(super) fn last_version(&mut self) -> Result<u64> {
        let rows = self.query(Sql::VersionsLast, &[])?;
        let last: Option<i64> = rows.first().map(|row| column(row, 0)).transpose()?;
        Ok(last.unwrap_or(0).cast_unsigned())
    }
}
