//! What was applied and refused.

use serde_json::json;

use super::super::facts;
use crate::config::Config;
use crate::data;
use crate::error::Result;
use crate::output::{Column, Output, Table, clean, dash, short_when};
use crate::parse;

/// Lists versions.
pub(super) async fn list(limit: u32, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let versions = data.store.versions(limit as usize).await?;
    data.close().await?;
    output.answer(&json!({ "versions": facts(&versions)? }), || {
        if versions.is_empty() {
            return "No document was applied yet; `tidegate registry apply FILE` does.".into();
        }
        let now = parse::now();
        let mut table = Table::new(vec![
            Column::number("VERSION"),
            Column::fixed("AT"),
            Column::fixed("OUTCOME"),
            Column::number("CHANGES"),
            Column::text("BY", 8).optional(2),
            Column::text("FROM", 12).optional(1),
            Column::text("WHY", 20).below(),
        ]);
        for version in &versions {
            let why = version.problems.first().map(|p| clean(&p.to_string()));
            table.row(vec![
                version.number.to_string(),
                short_when(version.at, now),
                version.outcome.as_str().to_owned(),
                version.changed.to_string(),
                clean(&version.by),
                clean(&version.source),
                dash(why.as_deref()),
            ]);
        }
        table.render(output)
    })
}
