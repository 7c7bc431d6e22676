//! `tidegate backup` and `tidegate restore`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::time::Millis;

use crate::config::Config;
use crate::data::{self, Copied};
use crate::error::{Failure, Result};
use crate::output::{Bulk, Output};
use crate::parse;

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// File to write
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Backup to read
    file: PathBuf,
}

/// Copies the data into one file; also while another process has the directory open.
pub(crate) async fn backup(args: BackupArgs, config: &Config, output: &Output) -> Result<()> {
    let file = args.file;
    let replaced = file.symlink_metadata().is_ok();
    if replaced && !(args.force && file.is_file()) {
        return Err(Failure::new(codes::DATA_EXISTS, format!("{} exists", file.display()))
            .hint("choose another name, or add --force to replace a file"));
    }
    let dir = data::existing_directory(config, "backup")?;
    let started = parse::now();
    let bulk = Arc::new(Bulk::start(output, "Backing up", 0));
    // The old backup stays until the new one is whole.
    let target = if replaced { beside(&file)? } else { file.clone() };
    let copied = data::backup(dir, target.clone(), bulk.clone()).await;
    drop(bulk);
    if copied? == Copied::Interrupted {
        return Err(Failure::new(codes::INTERRUPTED, "stopped by Ctrl-C; no backup was written")
            .hint("run the same command again"));
    }
    if replaced {
        std::fs::rename(&target, &file)?;
    }
    let bytes = std::fs::metadata(&file)?.len();
    let took = parse::now().since(started);
    let shown = file.display().to_string();
    output.answer(&json!({ "file": shown, "size_bytes": bytes, "took_ms": took }), || {
        format!("Backed up to {shown} ({}, {}).", size(bytes), Millis(took))
    })
}

/// Makes a data directory from a backup.
pub(crate) async fn restore(args: RestoreArgs, config: &Config, output: &Output) -> Result<()> {
    let dir = data::directory(config, "restore")?;
    if !args.file.is_file() {
        let file = args.file.display();
        return Err(Failure::new(codes::NO_DATA, format!("there is no backup at {file}"))
            .hint("name a file that `tidegate backup` wrote"));
    }
    if data::exists(&dir) {
        return Err(Failure::new(codes::DATA_EXISTS, format!("{} holds data already", dir.display()))
            .hint("restore into another directory with --dir"));
    }
    data::restore(&args.file, &dir).await?;
    let shown = dir.display().to_string();
    output.answer(&json!({ "dir": shown, "from": args.file.display().to_string() }), || {
        format!("Restored into {shown}; `tidegate queues ls --dir {shown}` shows what is there.")
    })
}

fn beside(file: &Path) -> Result<PathBuf> {
    let name = file.file_name().ok_or_else(|| {
        Failure::new(codes::INVALID_REQUEST, format!("{} is not a file name", file.display()))
            .hint("name a file, such as monday.tidegate")
    })?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    Ok(file.with_file_name(beside))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
