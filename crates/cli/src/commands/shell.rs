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
    #[arg(value_name = "DIR")]
    pages: PathBuf,
}

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a manual page for every command.
pub(crate) fn man(args: &ManArgs, output: &Output) -> Result<()> {
    std::fs::create_dir_all(&args.pages)?;
    clap_mangen::generate_to(Cli::command(), &args.pages)?;
    let ours = |e: io::Result<std::fs::DirEntry>| {
        e.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("tidegate"))
    };
    let pages = std::fs::read_dir(&args.pages)?.filter_map(|e| ours(e).then_some(())).count();
    let dir = args.pages.display().to_string();
    output.answer(&json!({ "dir": dir, "pages": pages }), || {
        format!("Wrote {} to {dir}; `man -l {dir}/tidegate.1` shows the first.", plural(pages as u64, "page"))
    })
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Two arguments of one name are one: `--only` once was the API key.
    #[test]
    fn no_argument_of_a_command_takes_the_name_of_one_that_is_everywhere() {
        fn walk(command: &Command, path: &str, everywhere: &[&str]) {
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name());
                for own in sub.get_arguments().filter(|a| !a.is_global_set()) {
                    assert!(!everywhere.contains(&own.get_id().as_str()), "{path}: {}", own.get_id());
                }
                walk(sub, &path, everywhere);
            }
        }
        let cli = Cli::command();
        let global = cli.get_arguments().filter(|a| a.is_global_set());
        let everywhere: Vec<&str> = global.map(|a| a.get_id().as_str()).collect();
        assert!(everywhere.contains(&"key"));
        walk(&cli, "tidegate", &everywhere);
    }
}
