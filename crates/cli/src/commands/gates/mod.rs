//! `tidegate gates`: what gates hold and who waits for them, and the levers of an emergency.

mod act;
mod limits;
pub(crate) mod look;
mod trace;

use std::path::Path;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use tidegate::gates::watched::TraceQuery;
use tidegate::gates::{Backend, GateSettings, GatesError, InvalidGates, Note, connect, connect_to_operate};
use tidegate_client::RemoteStore;
use tidegate_core::codes;

use crate::args::Consent;
use crate::config::{Config, nearest, without_password};
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::Output;

use super::parks::OPERATOR;

/// Keys of a domain that are looked at to know its gates.
const KEYS_LOOKED_AT: usize = 1_000;
/// What the one key of a gate of a whole domain is called.
const ALL_KEYS: &str = "(all)";

/// Which gates are meant.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct At {
    /// Where gates are decided: memory:, redis://… or postgres://… [default: memory:]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) gates: Option<String>,
    /// Their settings, TOML or JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) gates_file: Option<String>,
}

impl At {
    /// Puts the flags over what is configured.
    pub(crate) fn over(&self, config: &Config) -> Result<Config> {
        let mut config = config.clone();
        config.flag("gates.url", "--gates", self.gates.as_deref())?;
        config.flag("gates.file", "--gates-file", self.gates_file.as_deref())?;
        Ok(config)
    }
}

/// Arguments of `gates`.
#[derive(Debug, Args)]
pub(crate) struct GatesArgs {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    command: GatesCommand,
}

/// Who does it, and why.
#[derive(Debug, Clone, Args)]
pub(crate) struct Because {
    /// Why, for the record of changes
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Who, for the record of changes
    #[arg(long, value_name = "NAME", default_value = OPERATOR, value_parser = NonEmptyStringValueParser::new())]
    by: String,
}

impl Because {
    fn note(&self) -> Note {
        Note { who: self.by.clone(), why: self.reason.clone() }
    }
}

/// Commands on gates.
#[derive(Debug, Subcommand)]
pub(crate) enum GatesCommand {
    /// List domains: what is held, who waits, which gates are off, which breakers are not closed
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate gates ls
  tidegate gates ls --json | jq '.domains[] | select(.waiting > 0)'"
    )]
    Ls,
    /// Show a domain: every gate and key, who holds, who waits, what operators changed
    #[command(after_help = "Examples:
  tidegate gates show shopify
  tidegate gates show shopify --limit 100")]
    Show {
        /// The domain
        domain: String,
        /// Most keys, holders and waiters to show
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show how much state and memory each domain has
    #[command(after_help = "Examples:
  tidegate gates usage")]
    Usage,
    /// Show numbers per domain and tenant: reserved, released, expired, waits, slots, breakers
    #[command(after_help = "Examples:
  tidegate gates metrics
  tidegate gates metrics shopify --json | jq '.domains[].decision_ms'

All processes that share the gates count together; what one counted is kept for an hour after it ended.")]
    Metrics {
        /// Only this domain
        domain: Option<String>,
    },
    /// Show the lives of permits: asked, waited, admitted, renewed, settled, expired
    #[command(after_help = "Examples:
  tidegate gates trace shopify
  tidegate gates trace shopify --holder job_01JD0000000000000000000000
  tidegate gates trace shopify --last 5 --mermaid > trace.mmd

The newest 100 of a domain are kept per process, for an hour. Dots in the bar: it waited; blocks: it was held.")]
    Trace {
        /// The domain
        domain: String,
        /// Only of this job, or of this holder
        #[arg(long, value_name = "JOB")]
        holder: Option<String>,
        /// Only of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// How many, the newest
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
        last: u32,
        /// Print a sequence diagram in Mermaid
        #[arg(long)]
        mermaid: bool,
    },
    /// End the permits of a holder, as of a worker that is gone
    #[command(after_help = "Examples:
  tidegate gates release job_01JD0000000000000000000000 --dry-run --reason stuck
  tidegate gates release job_01JD0000000000000000000000 --yes --reason 'its machine is gone'

Its call may still be under way at the provider: what it held is free at once.")]
    Release {
        /// Who holds: a job's id
        holder: String,
        /// Only in this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        #[command(flatten)]
        because: Because,
        #[command(flatten)]
        consent: Consent,
    },
    /// Put a waiter first in its line
    #[command(after_help = "Examples:
  tidegate gates promote job_01JD0000000000000000000000 --reason 'the customer is on the phone'")]
    Promote {
        /// Who waits: a job's id
        holder: String,
        /// Only in this domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        #[command(flatten)]
        because: Because,
    },
    /// Reset or trip a breaker
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate gates breaker reset netsuite health --reason 'they are back'
  tidegate gates breaker trip netsuite health --for 10m --reason 'their outage' --yes
  tidegate gates breaker trip netsuite health --only acme --reason 'their account is locked' --yes"
    )]
    Breaker(BreakerCommand),
    /// Switch a gate off, or all of a domain: calls pass as if it were not there
    #[command(after_help = "Examples:
  tidegate gates disable shopify points --reason 'limit lifted for the sale' --yes
  tidegate gates disable shopify --reason 'emergency' --yes")]
    Disable {
        /// The domain
        domain: String,
        /// The gate; all of the domain if not given
        gate: Option<String>,
        #[command(flatten)]
        because: Because,
        #[command(flatten)]
        consent: Consent,
    },
    /// Switch a gate on again, or all of a domain
    #[command(after_help = "Examples:
  tidegate gates enable shopify --reason 'the sale is over'")]
    Enable {
        /// The domain
        domain: String,
        /// The gate; all of the domain if not given
        gate: Option<String>,
        #[command(flatten)]
        because: Because,
    },
    /// Forget everything that is held, waiting and learned in a domain
    #[command(after_help = "Examples:
  tidegate gates clear shopify --dry-run --reason test
  tidegate gates clear shopify --yes --reason 'after the migration'")]
    Clear {
        /// The domain
        domain: String,
        #[command(flatten)]
        because: Because,
        #[command(flatten)]
        consent: Consent,
    },
}

impl GatesCommand {
    /// The domain and the gate that are named.
    fn names(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Ls | Self::Usage => (None, None),
            Self::Show { domain, .. } | Self::Trace { domain, .. } | Self::Clear { domain, .. } => {
                (Some(domain.clone()), None)
            }
            Self::Metrics { domain } | Self::Release { domain, .. } | Self::Promote { domain, .. } => {
                (domain.clone(), None)
            }
            Self::Disable { domain, gate, .. } | Self::Enable { domain, gate, .. } => {
                (Some(domain.clone()), gate.clone())
            }
            Self::Breaker(BreakerCommand::Reset { breaker, .. } | BreakerCommand::Trip { breaker, .. }) => {
                (Some(breaker.domain.clone()), Some(breaker.gate.clone()))
            }
        }
    }
}

/// Commands on breakers.
#[derive(Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// Close it, and forget what was counted
    #[command(after_help = "Examples:
  tidegate gates breaker reset netsuite health --reason 'they are back'")]
    Reset {
        #[command(flatten)]
        breaker: BreakerArgs,
        #[command(flatten)]
        because: Because,
    },
    /// Open it for a while
    #[command(after_help = "Examples:
  tidegate gates breaker trip netsuite health --for 10m --reason 'their outage' --yes")]
    Trip {
        #[command(flatten)]
        breaker: BreakerArgs,
        /// How long
        #[arg(long = "for", value_name = "SPAN", default_value = "5m")]
        span: String,
        #[command(flatten)]
        because: Because,
        #[command(flatten)]
        consent: Consent,
    },
}

/// Which breaker.
#[derive(Debug, Args)]
pub(crate) struct BreakerArgs {
    /// The domain
    domain: String,
    /// The gate
    gate: String,
    /// Only of this key, as `gates show` names it; of all if not given, also of those that come
    #[arg(long, value_name = "KEY")]
    only: Option<String>,
}

impl BreakerArgs {
    fn key(&self) -> Option<&str> {
        self.only.as_deref().map(|key| if key == ALL_KEYS { "" } else { key })
    }
}

/// Runs a command on gates.
pub(crate) async fn run(args: GatesArgs, config: &Config, output: &Output) -> Result<()> {
    let config = args.at.over(config)?;
    let operated = to_operate(&config).await?;
    let backend = &*operated.backend;
    let (domain, gate) = args.command.names();
    match act(args.command, backend, output).await {
        Err(failure) if failure.code() == codes::GATE_NOT_FOUND => {
            Err(meant(backend, domain.as_deref(), gate.as_deref(), failure).await)
        }
        done => done,
    }
}

/// The failure, with the domain or the gate that was probably meant.
async fn meant(backend: &dyn Backend, domain: Option<&str>, gate: Option<&str>, failure: Failure) -> Failure {
    let (Some(domain), Ok(domains)) = (domain, backend.usage().await) else { return failure };
    let near = if domains.iter().any(|d| d.domain == domain) {
        let Ok(scopes) = backend.inspect(None, domain, KEYS_LOOKED_AT).await else { return failure };
        let gates = scopes.iter().flat_map(|scope| scope.gates.iter().map(|(name, _)| &**name));
        gate.and_then(|gate| nearest(gate, gates).filter(|near| *near != gate)).map(str::to_owned)
    } else {
        nearest(domain, domains.iter().map(|d| d.domain.as_str())).map(str::to_owned)
    };
    match near {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    }
}

/// Refuses a domain that has no gates.
async fn known(backend: &dyn Backend, domain: &str) -> Result<()> {
    if backend.usage().await?.iter().any(|d| d.domain == domain) {
        return Ok(());
    }
    Err(GatesError::UnknownDomain { domain: domain.to_owned() }.into())
}

async fn act(command: GatesCommand, backend: &dyn Backend, output: &Output) -> Result<()> {
    match command {
        GatesCommand::Ls => look::ls(backend, output).await,
        GatesCommand::Show { domain, limit } => look::show(backend, &domain, limit as usize, output).await,
        GatesCommand::Usage => look::usage(backend, output).await,
        GatesCommand::Metrics { domain } => trace::metrics(backend, domain.as_deref(), output).await,
        GatesCommand::Trace { domain, holder, tenant, last, mermaid } => {
            let query = TraceQuery { holder, tenant, last: last as usize };
            trace::trace(backend, &domain, &query, mermaid, output).await
        }
        GatesCommand::Release { holder, domain, because, consent } => {
            act::release(backend, &holder, domain.as_deref(), (&because, consent), output).await
        }
        GatesCommand::Promote { holder, domain, because } => {
            act::promote(backend, &holder, domain.as_deref(), &because, output).await
        }
        GatesCommand::Breaker(BreakerCommand::Reset { breaker, because }) => {
            act::reset(backend, &breaker, &because, output).await
        }
        GatesCommand::Breaker(BreakerCommand::Trip { breaker, span, because, consent }) => {
            act::trip(backend, &breaker, &span, (&because, consent), output).await
        }
        GatesCommand::Disable { domain, gate, because, consent } => {
            act::disable(backend, (&domain, gate.as_deref()), (&because, consent), output).await
        }
        GatesCommand::Enable { domain, gate, because } => {
            act::enable(backend, (&domain, gate.as_deref()), &because, output).await
        }
        GatesCommand::Clear { domain, because, consent } => {
            act::clear(backend, &domain, (&because, consent), output).await
        }
    }
}

/// The settings in the file that is named, if one is.
pub(crate) fn settings(config: &Config) -> Result<Option<GateSettings>> {
    let Some(file) = config.text("gates.file") else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::new(codes::INVALID_SETTING, format!("the gates in {file} could not be read: {e}"))
            .hint("check the path in --gates-file, TIDEGATE_GATES_FILE or gates.file")
    })?;
    let json = Path::new(file).extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
    let read = if json { GateSettings::from_json(&text) } else { GateSettings::from_toml(&text) };
    read.map(Some).map_err(|e| {
        let failure = Failure::from(e);
        Failure::new(failure.code(), format!("{file}: {}", failure.message())).hint(failure.hint_text())
    })
}

/// The gates that are configured, for what decides itself; none if nothing is.
pub(crate) async fn configured(config: &Config) -> Result<Option<(Arc<dyn Backend>, GateSettings)>> {
    let settings = settings(config)?;
    let url = config.text("gates.url");
    match (url, settings) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::new(codes::INVALID_SETTING, "gates have an address and no settings")
            .hint("name the file that holds them: --gates-file gates.toml")),
        (url, Some(settings)) => {
            let url = url.unwrap_or("memory:");
            let backend = connect(url).await.map_err(|e| at(url, e))?;
            Ok(Some((backend, settings)))
        }
    }
}

/// A failure of the gates at this address.
fn at(url: &str, error: GatesError) -> Failure {
    let failure = Failure::from(error);
    Failure::new(failure.code(), format!("the gates at {}: {}", without_password(url), failure.message()))
        .hint(failure.hint_text())
}

/// Gates, and the store whose connections they use.
pub(crate) struct Operated {
    pub(crate) backend: Arc<dyn Backend>,
    _store: Option<RemoteStore>,
}

/// The gates to look at: those at an address, else those of the server.
pub(crate) async fn to_operate(config: &Config) -> Result<Operated> {
    match config.text("gates.url") {
        Some(url) if !url.starts_with("memory:") => {
            let settings = settings(config)?;
            // Postgres keeps the settings beside the state; in Redis a state says nothing to who does not know them.
            if settings.is_none() && !url.starts_with("postgres") {
                return Err(Failure::new(codes::INVALID_SETTING, "gates have an address and no settings").hint(
                    "name the file that holds them: --gates-file gates.toml; or ask a server that has it: --store http://…",
                ));
            }
            let backend = connect_to_operate(url).await.map_err(|e| at(url, e))?;
            if let Some(settings) = settings {
                settings.apply(&*backend).await.map_err(|e| at(url, e))?;
            }
            Ok(Operated { backend, _store: None })
        }
        _ if matches!(data::target(config)?, Target::Remote(_)) => {
            let store = data::remote(config).await?;
            Ok(Operated { backend: Arc::new(store.gates()), _store: Some(store) })
        }
        _ => Err(Failure::new(codes::GATE_NOT_FOUND, "gates of a single process can be asked there alone")
            .hint(
                "ask its server with --store http://…, or name where gates are shared with --gates redis://…",
            )),
    }
}

impl From<GatesError> for Failure {
    fn from(e: GatesError) -> Self {
        Self::from(tidegate::Error::from(e))
    }
}

impl From<InvalidGates> for Failure {
    fn from(e: InvalidGates) -> Self {
        Self::from(tidegate::Error::from(e))
    }
}
