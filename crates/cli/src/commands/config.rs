//! `tidegate config`: what is in force and where it came from; whether a file is right.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value as Json, json};

use crate::config::{self, Config, Holds, SETTINGS, Source, Value};
use crate::error::Result;
use crate::output::{Column, Output, Table, dash, plural};

/// Commands on the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting, its value and where it came from; secrets are masked
    #[command(after_help = "Examples:
  tidegate config show
  tidegate config show --verbose                     what each setting is for
  tidegate config show --store postgres://db/jobs    with a flag over it
  tidegate config show --json | jq -r '.settings[] | select(.source != \"default\") | .key'

Flags beat the environment beats the file beats the defaults. The file is named by --config or \
TIDEGATE_CONFIG, else it is ./tidegate.toml, else ~/.config/tidegate/config.toml:

  store = \"postgres://localhost/jobs\"
  [worker]
  concurrency = 20")]
    Show {
        /// Say what each setting is for
        #[arg(long, short = 'v')]
        verbose: bool,
    },
    /// Check a file by itself: every mistake with its line, and nothing is done
    #[command(after_help = "Examples:
  tidegate config check tidegate.toml && systemctl restart tidegate")]
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Runs a command on the configuration.
pub(crate) fn run(command: ConfigCommand, config: Result<Config>, output: &Output) -> Result<()> {
    match command {
        ConfigCommand::Show { verbose } => show(&config?, verbose, output),
        ConfigCommand::Check { file } => {
            let settings = config::check_file(&file)?;
            let shown = file.display().to_string();
            output.answer(&json!({ "file": shown, "ok": true, "settings": settings }), || {
                format!("{shown} is fine: {}.", plural(settings as u64, "setting"))
            })
        }
    }
}

fn show(config: &Config, verbose: bool, output: &Output) -> Result<()> {
    let file = config.file.as_ref().map(|f| f.display().to_string());
    let rows: Vec<Json> = config.values().iter().map(facts).collect();
    output.answer(&json!({ "file": file, "settings": rows }), || {
        let mut table =
            Table::new(vec![Column::fixed("SETTING"), Column::text("VALUE", 16), Column::text("FROM", 12)]);
        for value in config.values() {
            table.row(vec![
                value.setting.key.into(),
                dash(value.shown().as_deref()),
                value.source.to_string(),
            ]);
        }
        let mut text = table.render(output);
        if verbose {
            text.push('\n');
            for setting in SETTINGS {
                let _ = writeln!(text, "{} ({}): {}", setting.key, setting.env[0], setting.help);
            }
        }
        let _ = match &file {
            Some(file) => writeln!(text, "\nFile: {file}"),
            None => writeln!(text, "\nNo file; --config FILE names one, ./tidegate.toml is found by itself."),
        };
        text
    })
}

fn facts(value: &Value) -> Json {
    let (source, line) = match &value.source {
        Source::Flag(flag) => (format!("flag {flag}"), None),
        Source::Environment(name) => (format!("environment {name}"), None),
        Source::File(path, line) => (format!("file {}", path.display()), Some(line)),
        Source::Default => ("default".into(), None),
    };
    json!({
        "key": value.setting.key,
        "value": value.shown(),
        "masked": value.setting.holds == Holds::Secret && value.text.is_some(),
        "source": source,
        "line": line,
        "env": value.setting.env,
        "default": value.setting.default,
        "expects": value.setting.holds.expected(),
        "help": value.setting.help,
    })
}
