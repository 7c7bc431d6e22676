//! `tidegate migrate`: the schema of a Postgres database.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;
use tidegate_core::codes;
use tidegate_store_postgres::{PgOptions, Step, migrate};

use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::{Output, plural, print};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Say what would be done and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the statements
    #[arg(long, requires = "dry_run")]
    sql: bool,
}

/// Brings the schema up to date, or says what that would take.
pub(crate) async fn run(args: &MigrateArgs, config: &Config, output: &Output) -> Result<()> {
    let target = data::target(config)?;
    let Target::Postgres(url) = &target else {
        return Err(Failure::new(
            codes::INVALID_REQUEST,
            format!("{} is no Postgres database", target.shown()),
        )
        .hint("name one with --store postgres://…; embedded directories migrate when they are opened"));
    };
    let steps = migrate(url, PgOptions::new(), args.dry_run).await?;
    if args.sql && !output.json {
        // As `psql -f` takes it.
        let one = |s: &Step| format!("-- {}\n{};\n\n", s.name, s.sql.trim_end().trim_end_matches(';'));
        let all: String = steps.iter().map(one).collect();
        return print(&if all.is_empty() { all } else { format!("BEGIN;\n\n{all}COMMIT;\n") });
    }
    let mut value =
        json!({ "dry_run": args.dry_run, "steps": steps.iter().map(|s| &s.name).collect::<Vec<_>>() });
    if args.sql {
        value["sql"] = json!(steps.iter().map(|s| &s.sql).collect::<Vec<_>>());
    }
    output.answer(&value, || {
        if steps.is_empty() {
            return "The schema is up to date.".into();
        }
        let mut text = String::new();
        for step in &steps {
            let _ = writeln!(text, "  {}", step.name);
        }
        let n = plural(steps.len() as u64, "step");
        text.push_str(&n);
        text.push_str(if args.dry_run { " to do; nothing was changed." } else { " done." });
        text
    })
}
