//! What shells and manuals need: completions and man pages, made from the same definitions as the help.

use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;
use crate::error::Result;
use crate::output::{Output, plural, print};

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory to write to; made if it does not exist
    dir: PathBuf,
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a manual page for every command.
pub(crate) fn man(args: &ManArgs, output: &Output) -> Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    clap_mangen::generate_to(Cli::command(), &args.dir)?;
    let ours = |e: io::Result<std::fs::DirEntry>| {
        e.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("tidegate"))
    };
    let pages = std::fs::read_dir(&args.dir)?.filter_map(|e| ours(e).then_some(())).count();
    let dir = args.dir.display().to_string();
    output.answer(&json!({ "dir": dir, "pages": pages }), || {
        format!("Wrote {} to {dir}; `man -l {dir}/tidegate.1` shows the first.", plural(pages as u64, "page"))
    })
}
