//! `tidegate bench`: measured figures, as a table or as JSON. The JSON keys are a contract with scripts that compare
//! runs; see `bench/peers`.

mod backlog;
mod dependent;
mod figures;
mod fleet;
mod gates;
mod http;
mod jobs;
mod neighbours;
mod steady;

use clap::{Args, Subcommand};

use crate::config::Config;
use crate::error::Result;
use crate::output::Output;

/// Arguments of `tidegate bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Enqueue, process and pick up jobs through the library
    #[command(after_help = "Examples:
  tidegate bench jobs --jobs 100000
  tidegate bench jobs --store sqlite:/data/bench --jobs 100000 --json
  tidegate bench jobs --store postgres://localhost/bench   a database of its own
  tidegate bench jobs --backlog ready=1000000,delayed=1000000,completed=1000000,parked=10000x100
  tidegate bench jobs --store postgres://localhost/bench --processes 4
  tidegate bench jobs --store postgres://localhost/bench --minutes 10")]
    Jobs(jobs::JobsArgs),
    /// Enqueue, process and pick up jobs over HTTP, with a server of its own
    #[command(after_help = "Examples:
  tidegate bench http --jobs 100000
  tidegate bench http --jobs 100000 --json")]
    Http(http::HttpArgs),
    /// Ask gates for admission as fast as they answer, and check that nothing passes that may not
    #[command(after_help = "Examples:
  tidegate bench gates
  tidegate bench gates --gates redis://localhost --json
  tidegate bench gates --gates postgres://localhost/bench --seconds 10")]
    Gates(gates::GatesArgs),
    /// Serve free tenants alone and next to one that is limited and has very many jobs, and compare how long theirs wait
    #[command(after_help = "Examples:
  tidegate bench neighbours
  tidegate bench neighbours --limited 100000 --rate 200 --json
  tidegate bench neighbours --store postgres://localhost/bench --gates redis://localhost")]
    Neighbours(neighbours::NeighboursArgs),
    /// Fill a store with a backlog; `bench jobs` does this in a process of its own, so that memory is measured clean
    #[command(hide = true)]
    Fill(backlog::FillArgs),
    /// Work as one of several processes; `bench jobs --processes` starts it
    #[command(hide = true)]
    Drain(fleet::DrainArgs),
}

/// Runs a measurement.
pub(crate) async fn run(args: BenchArgs, config: &Config, output: &Output) -> Result<()> {
    match args.what {
        What::Jobs(args) => jobs::run(args, config, output).await,
        What::Http(args) => http::run(args, output).await,
        What::Gates(args) => gates::run(args, output).await,
        What::Neighbours(args) => neighbours::run(args, config, output).await,
        What::Fill(args) => backlog::fill(args, config, output).await,
        What::Drain(args) => fleet::drain(args, config).await,
    }
}
