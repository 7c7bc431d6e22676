//! The `tidegate` command.

mod args;
mod bench;
mod commands;
mod config;
mod consent;
mod data;
mod demo;
mod error;
mod job_log;
mod logging;
mod output;
mod parse;
mod telemetry;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use config::Config;
use error::{Failure, Result};
use output::{ColorChoice, Output};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let output = Output::detect(cli.global.json, cli.global.color);
    // A configuration that cannot be read is said by the commands that need one.
    let config = Config::load(&cli.global);
    let level = config.as_ref().ok().and_then(|c| c.text("log.level")).map(str::to_owned);
    logging::install(level.as_deref().unwrap_or(cli.command.default_log_level()));
    match run(cli, config, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli, config: Result<Config>, output: &Output) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(dispatch(cli, config, output));
    // A prompt that waits for a line would otherwise hold the exit up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    code
}

async fn dispatch(cli: Cli, config: Result<Config>, output: &Output) -> Result<ExitCode> {
    match cli.command {
        Command::Explain(args) => commands::explain::run(&args, output)?,
        Command::Completions(args) => commands::shell::completions(&args)?,
        Command::Man(args) => commands::shell::man(&args, output)?,
        Command::Doctor(args) => return commands::doctor::run(args, config, output).await,
        Command::Config(command) => commands::config::run(command, config, output)?,
        other => return with_config(other, &config?, output).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn with_config(command: Command, config: &Config, output: &Output) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => return demo::run(args, config, output).await,
        Command::Bench(args) => bench::run(args, config, output).await?,
        Command::Enqueue(args) => commands::enqueue::run(args, config, output).await?,
        Command::Jobs(command) => commands::jobs::run(command, config, output).await?,
        Command::Queues(command) => commands::queues::run(command, config, output).await?,
        Command::Groups(command) => commands::groups::run(command, config, output).await?,
        Command::Parks(command) => commands::parks::run(command, config, output).await?,
        Command::Schedules(command) => commands::schedules::run(command, config, output).await?,
        Command::Gates(args) => commands::gates::run(args, config, output).await?,
        Command::Alerts(command) => commands::alerts::run(command, config, output).await?,
        Command::Slo(args) => return commands::slo::run(args, config, output).await,
        Command::Registry(command) => commands::registry::run(command, config, output).await?,
        Command::Kinds(command) => commands::kinds::run(command, config, output).await?,
        Command::Dead(command) => commands::dead::run(command, config, output).await?,
        Command::Serve(args) => commands::serve::run(args, config, output).await?,
        Command::Keys(command) => commands::keys::run(command, config, output).await?,
        Command::Top(args) => commands::top::run(args, config, output).await?,
        Command::Tail(args) => commands::tail::run(args, config, output).await?,
        Command::Work(args) => commands::work::run(*args, config, output).await?,
        Command::Workers(command) => commands::workers::run(command, config, output).await?,
        Command::Why(args) => commands::why::run(args, config, output).await?,
        Command::Migrate(args) => commands::migrate::run(&args, config, output).await?,
        Command::Backup(args) => commands::backup::backup(args, config, output).await?,
        Command::Restore(args) => commands::backup::restore(args, config, output).await?,
        Command::Explain(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Doctor(_) => unreachable!("these go without a configuration that works"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Help and version go to standard output; what cannot be parsed is an error like any other.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    // The arguments were not parsed to their end, so they are looked at by hand for the two flags that shape the answer.
    let given: Vec<String> = std::env::args().collect();
    let never = given.windows(2).any(|w| w[0] == "--color" && w[1] == "never")
        || given.iter().any(|a| a == "--color=never");
    // A closed pipe is the reader's way to say "enough".
    let help = || match never {
        true if error.use_stderr() => drop(io::stderr().write_all(error.to_string().as_bytes())),
        true => drop(output::print(&error.to_string())),
        false => drop(error.print()),
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            help();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help();
            ExitCode::from(2)
        }
        _ => {
            let json = given.iter().any(|a| a == "--json");
            let color = if never { ColorChoice::Never } else { ColorChoice::Auto };
            let failure: Failure = error::from_clap(error);
            Output::detect(json, color).failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
