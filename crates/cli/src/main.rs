//! The `tidegate` command.

mod args;
mod bench;
mod commands;
mod consent;
mod data;
mod demo;
mod error;
mod logging;
mod output;
mod parse;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::{Failure, Result};
use output::{ColorChoice, Output};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let output = Output::detect(cli.global.json, cli.global.color);
    logging::install();
    match run(cli, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(dispatch(cli, output));
    // A prompt that waits for a line would otherwise hold the exit up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    code
}

async fn dispatch(cli: Cli, output: &Output) -> Result<ExitCode> {
    let dir = &cli.global;
    match cli.command {
        Command::Demo(args) => return demo::run(args, dir.dir.clone(), output).await,
        Command::Bench(args) => bench::run(args, output).await?,
        Command::Enqueue(args) => commands::enqueue::run(args, dir, output).await?,
        Command::Jobs(command) => commands::jobs::run(command, dir, output).await?,
        Command::Queues(command) => commands::queues::run(command, dir, output).await?,
        Command::Kinds(command) => commands::kinds::run(command, dir, output).await?,
        Command::Dead(command) => commands::dead::run(command, dir, output).await?,
        Command::Why(args) => commands::why::run(args, dir, output).await?,
        Command::Backup(args) => commands::backup::backup(args, dir, output).await?,
        Command::Restore(args) => commands::backup::restore(args, dir, output).await?,
        Command::Explain(args) => commands::explain::run(&args, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Help and version go to standard output; what cannot be parsed is an error like any other.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is the reader's way to say "enough".
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            // The arguments could not be parsed, so they are looked at by hand for the two flags that shape the answer.
            let given: Vec<String> = std::env::args().collect();
            let json = given.iter().any(|a| a == "--json");
            let never = given.windows(2).any(|w| w[0] == "--color" && w[1] == "never")
                || given.iter().any(|a| a == "--color=never");
            let color = if never { ColorChoice::Never } else { ColorChoice::Auto };
            let failure: Failure = error::from_clap(error);
            Output::detect(json, color).failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
