//! `tidegate work`: handlers that are commands or HTTP endpoints, so that a shell script can be one.

mod exec;
mod http;
mod kinds;
mod metrics;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tidegate::gates::GateSettings;
use tidegate::{Context, Failure as JobFailure, Outcome, Tidegate, Worker};
use tidegate_core::codes;
use tidegate_core::ids::{ConnectorName, KindName, QueueName};
use tidegate_core::time::Millis;

use self::exec::Command;
use self::http::Endpoint;
use self::kinds::Kinds;
use self::metrics::Metrics;
use crate::config::{Config, Source, nearest};
use crate::data;
use crate::error::{Failure, Result};
use crate::job_log::{JobLog, JobLogArgs};
use crate::output::{Output, clean};
use crate::parse;
use crate::telemetry::{self, TelemetryArgs};

/// Arguments of `work`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct WorkArgs {
    /// Kinds to handle; one that is not registered is registered
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Register a --kind that is new although it looks like a slip of the finger
    #[arg(long, requires = "kinds")]
    new: bool,
    /// Queues to serve; without --kind every kind in them is handled
    #[arg(long = "queue", value_name = "QUEUE", value_delimiter = ',')]
    queues: Vec<String>,
    /// Run this for each job, by `sh -c`: payload on standard input
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["url", "program"])]
    exec: Option<String>,
    /// Send each job there by POST: payload as body
    #[arg(long, value_name = "URL", conflicts_with = "program")]
    url: Option<String>,
    /// Run this program for each job, without a shell
    #[arg(last = true, value_name = "PROGRAM [ARG]…")]
    program: Vec<String>,
    /// Jobs at a time [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    concurrency: Option<String>,
    /// How long a lease holds without a heartbeat [default: 30s]
    #[arg(long, value_name = "SPAN")]
    lease: Option<String>,
    /// Time that jobs have to finish at shutdown [default: 45s]
    #[arg(long, value_name = "SPAN")]
    drain: Option<String>,
    /// Time between SIGTERM and SIGKILL of a job that is cancelled [default: 5s]
    #[arg(long, value_name = "SPAN")]
    grace: Option<String>,
    #[arg(
        long,
        conflicts_with = "url",
        help = "Leave TIDEGATE_STORE, TIDEGATE_DATA, TIDEGATE_KEY and TIDEGATE_CONFIG in the command's environment, for handlers that call tidegate themselves; off, because a handler could print them into the job's log"
    )]
    pass_credentials: bool,
    /// Name in leases and in `tidegate workers ls`
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Timeout of one attempt, for kinds that are registered here
    #[arg(long, value_name = "SPAN")]
    timeout: Option<String>,
    /// End when nothing is left that could run
    #[arg(long)]
    until_idle: bool,
    /// Ask the gates of this API before each job; a job that must wait is put off
    #[arg(long, value_name = "CONNECTOR")]
    gate: Option<String>,
    /// What a job's call costs, in points
    #[arg(long, value_name = "POINTS", default_value_t = 1.0, requires = "gate")]
    cost: f64,
    /// Serve /metrics and /health of this worker at this address and port
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    #[command(flatten)]
    log: JobLogArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
    #[command(flatten)]
    at: super::gates::At,
    /// No line for each job
    #[arg(long, short)]
    quiet: bool,
}

/// How a job is handled.
enum Handler {
    Command(Command),
    Endpoint(Endpoint),
}

impl Handler {
    fn of(args: &WorkArgs, grace_ms: i64) -> Result<Self> {
        let pass = args.pass_credentials;
        match (&args.exec, &args.url, args.program.as_slice()) {
            (Some(line), None, []) => Command::line(line, grace_ms, pass).map(Self::Command),
            (None, None, words @ [_, ..]) => Command::program(words, grace_ms, pass).map(Self::Command),
            (None, Some(url), []) => Ok(Self::Endpoint(Endpoint::new(url, args.until_idle)?)),
            _ => Err(Failure::new(codes::INVALID_REQUEST, "nothing is named that would do the work")
                .hint("add --exec './handler.sh', --url http://127.0.0.1:9000/jobs, or -- PROGRAM ARGS")),
        }
    }

    async fn handle(&self, cx: &Context) -> Outcome {
        match self {
            Self::Command(command) => command.run(cx).await,
            Self::Endpoint(endpoint) => endpoint.call(cx).await,
        }
    }
}

/// How every job is handled.
struct Handling {
    handler: Handler,
    /// The gates to ask first, and what a call costs.
    gate: Option<(ConnectorName, f64)>,
    quiet: bool,
}

impl Handling {
    async fn run(&self, cx: &Context) -> Outcome {
        let started = Instant::now();
        let outcome = self.gated(cx).await;
        // The worker says once that it waits: not for each job that it leaves where it is.
        let left = matches!(&outcome, Err(failure) if failure.is_unready());
        if !self.quiet && !left {
            say(cx, &outcome, started);
        }
        outcome
    }

    /// The engine settles the permit by what becomes of the job.
    async fn gated(&self, cx: &Context) -> Outcome {
        let _permit = match &self.gate {
            Some((connector, cost)) => Some(cx.gate(connector.as_str()).cost(*cost).admit().await?),
            None => None,
        };
        self.handler.handle(cx).await
    }
}

/// The store with its gates: the server's, or those that are configured. Refuses a connector that has none, before it costs
/// jobs their attempts.
async fn gated(data: &data::Data, config: &Config, wanted: Option<&ConnectorName>) -> Result<Tidegate> {
    let tide = Tidegate::with_store(data.store.clone());
    if let Some(server) = &data.gates {
        for key in ["gates.url", "gates.file"] {
            if let Source::Flag(flag) = config.value(key).source {
                let problem =
                    format!("{flag} is not for a worker of a server: the server's own gates decide");
                return Err(Failure::new(codes::INVALID_SETTING, problem)
                    .hint("give them to `tidegate serve`, or leave them out here"));
            }
        }
        if let Some(wanted) = wanted {
            has_gates(wanted, &server.settings().await?)?;
        }
        return Ok(tide.gates_of(server.clone()));
    }
    let configured = super::gates::configured(config).await?;
    if let Some(wanted) = wanted {
        has_gates(wanted, configured.as_ref().map_or(&GateSettings::default(), |(_, settings)| settings))?;
    }
    match configured {
        Some((backend, settings)) => Ok(tide.gates_with(backend, settings).await?),
        None => Ok(tide),
    }
}

fn has_gates(wanted: &ConnectorName, settings: &GateSettings) -> Result<()> {
    let domain = settings.domain_of(wanted.as_str());
    if settings.gates.contains_key(domain) {
        return Ok(());
    }
    let known = settings.gates.keys().map(String::as_str);
    let hint = match nearest(wanted.as_str(), known) {
        Some(near) => format!("did you mean {near}?"),
        None if settings.gates.is_empty() => {
            "give the server, or this worker, a file of gates: --gates-file gates.toml".into()
        }
        None => {
            format!("there are gates for {}", settings.gates.keys().cloned().collect::<Vec<_>>().join(", "))
        }
    };
    Err(Failure::new(codes::GATE_NOT_FOUND, format!("no gates are set for {wanted}")).hint(hint))
}

/// Works until told to stop.
pub(crate) async fn run(args: WorkArgs, config: &Config, output: &Output) -> Result<()> {
    let mut config = args.at.over(config)?;
    config.flag("worker.concurrency", "--concurrency", args.concurrency.as_deref())?;
    config.flag("worker.lease", "--lease", args.lease.as_deref())?;
    config.flag("worker.drain", "--drain", args.drain.as_deref())?;
    config.flag("worker.grace", "--grace", args.grace.as_deref())?;
    config.flag("worker.name", "--name", args.name.as_deref())?;
    config.flag("worker.metrics", "--metrics", args.metrics.as_deref())?;
    args.log.over(&mut config)?;
    args.telemetry.over(&mut config)?;
    let handler = Handler::of(&args, config.span_ms("worker.grace"))?;
    let mut queues: Vec<QueueName> = vec![];
    for name in args.queues.iter().map(String::as_str).chain(config.names("worker.queues")) {
        queues.push(parse::name(name)?);
    }
    let named: Vec<KindName> = args.kinds.iter().map(|k| parse::name(k)).collect::<Result<_>>()?;
    if named.is_empty() && queues.is_empty() {
        return Err(Failure::new(codes::INVALID_REQUEST, "neither a kind nor a queue is named")
            .hint("add --kind hello, or --queue default to handle every kind in it"));
    }
    let timeout_ms = args.timeout.as_deref().map(parse::span).transpose()?;
    let data = data::open_or_create(&config).await?;
    let connector = args.gate.as_deref().map(parse::name::<ConnectorName>).transpose()?;
    let kinds = kinds::choose(&*data.store, &named, &queues, (timeout_ms, connector.as_ref())).await?;
    if !args.new {
        kinds.refuse_a_slip(&*data.store).await?;
    }
    let mut tide = gated(&data, &config, connector.as_ref()).await?;
    let traces = telemetry::start(&config)?;
    if let Some(traces) = &traces {
        tide = tide.with_telemetry(traces.clone());
    }
    let handling =
        Handling { handler, gate: connector.map(|c| (c, args.cost)), quiet: args.quiet || output.json };
    let worker = worker(&tide, &kinds, &queues, &Arc::new(handling), &config);
    worker.check().await.map_err(|e| refused(e, &kinds))?;
    output.note(&opening(&kinds, &config, &data.target.shown()));
    let job_log = JobLog::start(&config, &data.store);
    let metrics = Metrics::serve(&config, &data, traces.clone(), output).await?;
    let report = if args.until_idle { worker.run_until_idle().await } else { worker.run().await };
    metrics.end().await;
    job_log.end().await;
    telemetry::end(traces).await;
    let report = report.map_err(|e| refused(e, &kinds))?;
    if let Some(gates) = tide.gate_backend() {
        gates.flush().await;
    }
    data.close().await?;
    let registered: Vec<&KindName> = kinds.registered().collect();
    output.answer(&json!({ "attempts": report, "registered": registered }), || format!("Stopped: {report}."))
}

/// Why the worker does not work, with what to do about it from here.
fn refused(error: tidegate::Error, kinds: &Kinds) -> Failure {
    match error.code {
        codes::HANDLERS_MISSING => Failure::from(error).hint(format!(
            "{}name those kinds too with --kind, or leave --kind out and name the --queue: then every kind in it is handled",
            kinds.meant().map_or(String::new(), |meant| format!("{meant} Otherwise ")),
        )),
        _ => error.into(),
    }
}

fn worker(
    tide: &Tidegate,
    kinds: &Kinds,
    queues: &[QueueName],
    handling: &Arc<Handling>,
    config: &Config,
) -> Worker {
    let mut worker = Worker::new(tide)
        .concurrency(config.count("worker.concurrency") as usize)
        .lease(Millis(config.span_ms("worker.lease")))
        .drain(Millis(config.span_ms("worker.drain")))
        .letters_every(Millis(config.span_ms("letters.every")))
        // Some room to notice that the command is gone after SIGKILL.
        .grace(Millis(config.span_ms("worker.grace") + 1_000));
    if let Some(name) = config.text("worker.name") {
        worker = worker.name(name);
    }
    for (kind, settings) in &kinds.list {
        let handling = handling.clone();
        worker = worker.handle_kind(kind.as_str(), settings.clone(), move |cx: Context| {
            let handling = handling.clone();
            async move { handling.run(&cx).await }
        });
    }
    // A queue must exist to be served; those of new kinds are made with them.
    let made: Vec<&QueueName> = kinds.list.iter().filter_map(|(_, s)| s.as_ref().map(|s| &s.queue)).collect();
    for queue in queues.iter().filter(|q| !made.contains(q)) {
        worker = worker.queue(queue.as_str());
    }
    worker
}

fn opening(kinds: &Kinds, config: &Config, store: &str) -> String {
    let names: Vec<&str> = kinds.list.iter().map(|(k, _)| k.as_str()).collect();
    let new: Vec<&str> = kinds.registered().map(KindName::as_str).collect();
    let new = match (new.as_slice(), kinds.meant()) {
        ([], _) => String::new(),
        (new, meant) => {
            let are = if new.len() == 1 { "which is" } else { "which are" };
            let meant = meant.map_or(String::new(), |meant| format!(" {meant}"));
            format!(" Registered {}, {are} new.{meant}", new.join(", "))
        }
    };
    format!(
        "Working on {} at {store}, {} at a time.{new}\nCtrl-C lets what runs finish; twice stops now.",
        names.join(", "),
        config.count("worker.concurrency")
    )
}

/// One line about a job that ended, on standard error.
fn say(cx: &Context, outcome: &Outcome, started: Instant) {
    let what = match outcome {
        Ok(_) => "done".to_owned(),
        Err(failure) => sentence(failure),
    };
    let took = match started.elapsed().as_millis() as i64 {
        ms @ ..1_000 => format!("{ms} ms"),
        ms => Millis(ms).to_string(),
    };
    // Nothing can be done where standard error is gone.
    let _ = writeln!(std::io::stderr(), "{}  {}  {took}  {}", cx.id(), cx.kind(), clean(&what));
}

fn sentence(failure: &JobFailure) -> String {
    if failure.is_wait() {
        format!("put off: {}", failure.message())
    } else if failure.is_snooze() {
        format!("snoozed: {}", failure.message())
    } else if failure.category().is_none() {
        format!("given back: {}", failure.message())
    } else {
        format!("failed: {}: {}", failure.code(), failure.message())
    }
}
