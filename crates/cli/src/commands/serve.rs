//! `tidegate serve`: a store behind an HTTP API, for any number of programs in any language.

mod reload;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate::presence::{self, Presence};
use tidegate_core::codes;
use tidegate_server::{Rate, Server, ServerGates, ServerOptions, ServerRoles, TlsFiles};
use tidegate_store::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::job_log::{JobLog, JobLogArgs};
use crate::output::{Output, print};
use crate::parse;
use crate::telemetry::{self, TelemetryArgs};

/// Longest time that the end waits for the presence to be taken back.
const FAREWELL: Duration = Duration::from_secs(1);

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7433]
    #[arg(long, value_name = "ADDR")]
    bind: Option<String>,
    /// What this process does: api, maintenance, or all [default: all]
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Certificate chain (PEM), to speak HTTPS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Time that requests have to finish at shutdown [default: 10s]
    #[arg(long, value_name = "SPAN")]
    drain: Option<String>,
    /// Apply this registry at start, and again when the file changes or on SIGHUP
    #[arg(long, value_name = "FILE")]
    registry: Option<String>,
    /// Rules and channels of alerts (TOML)
    #[arg(long, value_name = "FILE")]
    alerts_file: Option<String>,
    #[command(flatten)]
    log: JobLogArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
    #[command(flatten)]
    at: super::gates::At,
}

/// Serves until told to stop.
pub(crate) async fn run(args: ServeArgs, config: &Config, output: &Output) -> Result<()> {
    let mut config = args.at.over(config)?;
    config.flag("server.bind", "--bind", args.bind.as_deref())?;
    config.flag("server.role", "--role", args.role.as_deref())?;
    config.flag("server.tls_cert", "--tls-cert", args.tls_cert.as_deref())?;
    config.flag("server.tls_key", "--tls-key", args.tls_key.as_deref())?;
    config.flag("server.drain", "--drain", args.drain.as_deref())?;
    config.flag("server.registry", "--registry", args.registry.as_deref())?;
    config.flag("alerts.file", "--alerts-file", args.alerts_file.as_deref())?;
    args.log.over(&mut config)?;
    args.telemetry.over(&mut config)?;
    let mut options = options(&config)?;
    let target = data::target(&config)?;
    if let Target::Remote(_) = target {
        return Err(Failure::new(
            codes::INVALID_REQUEST,
            format!("{} is the address of a server, not a store to serve", target.shown()),
        )
        .hint("add --dir DIR or --store postgres://…, or unset TIDEGATE_STORE if that names the server"));
    }
    let registry = config.text("server.registry").map(PathBuf::from);
    if let Some(file) = registry.as_deref().filter(|file| *file != Path::new("-")) {
        // One that is gone later is being replaced; one that is not there at the start is a slip.
        super::registry::text_of(file)?;
    }
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    // A port of the system's choice is known too late to tell others who ask for the directory.
    let known = (options.bind.port() != 0).then(|| format!("{scheme}://{}", reachable(options.bind)));
    let mut signals = Signals::listen()?;
    if let Some((backend, settings)) = super::gates::configured(&config).await? {
        options.gates = Some(ServerGates::new(backend, settings).await?);
    }
    let gates = options.gates.clone();
    let traces = telemetry::start(&config)?;
    options.telemetry.clone_from(&traces);
    let data = data::open_serving(&config, known).await?;
    let mut reload = registry.map(|file| reload::Reload::new(file, data.store.clone())).transpose()?;
    if let Some(reload) = &mut reload {
        reload.once(reload::Because::Start).await;
    }
    let server = Server::bind(data.store.clone(), options).await?;
    let job_log = JobLog::start(&config, &data.store);
    let url = format!("{scheme}://{}", reachable(server.addr()));
    greet(&url, &data.target, &*data.store, &config, output).await?;

    let stop = watch::Sender::new(false);
    let mut stopped = stop.subscribe();
    let serving = server.run(async move { drop(stopped.wait_for(|s| *s).await) });
    let announcing = announce(data.store.clone(), url, stop.clone());
    // Whichever of the two ends ends the other.
    let serving = async {
        serving.await;
        stop.send_replace(true);
    };
    let mut running = Box::pin(async {
        tokio::join!(serving, announcing);
    });
    let mut reloading = std::pin::pin!(reload::run(reload));
    let over = tokio::select! {
        () = &mut running => true,
        () = &mut reloading => false,
        () = signals.next() => {
            output.note("Stopping: requests under way may finish. Again: now.");
            false
        }
    };
    stop.send_replace(true);
    if !over {
        tokio::select! {
            () = running => {}
            () = signals.next() => output.note("Stopped now; requests under way were cut off."),
        }
    }
    if let Some(gates) = gates {
        gates.backend.flush().await;
    }
    job_log.end().await;
    telemetry::end(traces).await;
    data.close().await
}

fn options(config: &Config) -> Result<ServerOptions> {
    let path = |key: &str| config.text(key).map(PathBuf::from);
    let tls = match (path("server.tls_cert"), path("server.tls_key")) {
        (Some(certificates), Some(private_key)) => Some(TlsFiles { certificates, private_key }),
        (None, None) => None,
        _ => {
            return Err(Failure::new(
                codes::INVALID_TLS,
                "a certificate needs its key and a key its certificate",
            )
            .hint("name both: --tls-cert chain.pem --tls-key key.pem"));
        }
    };
    let roles = match config.text("server.role") {
        Some("api") => ServerRoles { api: true, maintenance: false },
        Some("maintenance") => ServerRoles { api: false, maintenance: true },
        _ => ServerRoles { api: true, maintenance: true },
    };
    let mut options = ServerOptions {
        bind: address(config.text("server.bind").unwrap_or_default())?,
        tls,
        roles,
        drain: Duration::from_millis(config.span_ms("server.drain") as u64),
        alerts: super::alerts::settings(config)?,
        metrics_by_tenant: config.text("server.metrics_by_tenant") == Some("yes"),
        letters_every: Duration::from_millis(config.span_ms("letters.every") as u64),
        ..ServerOptions::default()
    };
    options.limits.connections = config.count("server.max_connections") as usize;
    options.limits.body_bytes = config.count("server.max_body_bytes") as usize;
    if config.text("server.requests_per_second").is_some() {
        options.limits.rate = Rate::PerSecond(config.count("server.requests_per_second") as u32);
    }
    Ok(options)
}

/// An address; a name such as `localhost` is looked up.
pub(crate) fn address(text: &str) -> Result<SocketAddr> {
    let refuse = |why: String| {
        let shown: String = text.chars().take(60).collect();
        Failure::new(codes::INVALID_SETTING, format!("{shown:?} is not an address: {why}"))
            .hint("write it like 127.0.0.1:7433, 0.0.0.0:7433, [::1]:7433 or localhost:7433")
    };
    let mut found = text.to_socket_addrs().map_err(|e| refuse(e.to_string()))?;
    found.next().ok_or_else(|| refuse("it has no address".into()))
}

/// An address that can be asked: one that means every address is asked on this machine.
fn reachable(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(a) if a.ip().is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, a.port())),
        SocketAddr::V6(a) if a.ip().is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, a.port())),
        other => other,
    }
}

/// Says where it listens and what to try.
async fn greet(
    url: &str,
    target: &Target,
    store: &dyn Store,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let keys = tidegate_server::keys::list(store, parse::now()).await?;
    let live = keys.iter().filter(|k| k.revoked_at.is_none()).count() as u64;
    let role = config.text("server.role").unwrap_or_default();
    let shown = target.shown();
    if output.json {
        return print(
            &(json!({ "url": url, "store": shown, "role": role, "keys": live }).to_string() + "\n"),
        );
    }
    let style = output.style;
    let who = match live {
        0 if keys.is_empty() => "No keys yet, so only programs of this machine are answered.".to_owned(),
        1 => "1 key may be used.".into(),
        n => format!("{n} keys may be used."),
    };
    let key = if keys.is_empty() { "" } else { " TIDEGATE_KEY=tg_…" };
    let (name, at) = (style.bold("tidegate"), style.bold(url));
    let version = env!("CARGO_PKG_VERSION");
    let next = style.bold("Try in another terminal");
    print(&format!(
        "{name} {version} serves {shown} at {at} (role {role})\n{who}\n\n{next}\n  \
         export TIDEGATE_STORE={url}{key}\n  \
         tidegate work --kind hello --exec cat &\n  \
         tidegate enqueue hello --data '{{\"name\":\"you\"}}'\n  \
         tidegate top\n\nCtrl-C lets requests finish; twice stops now.\n"
    ))
}

/// Says that this server is alive until it stops, and stops it if somebody asks.
async fn announce(store: Arc<dyn Store>, url: String, stop: watch::Sender<bool>) {
    let mut stopped = stop.subscribe();
    let mut mine = Presence::of_this_process("server", parse::now());
    let name = format!("server-{}-{}", mine.host, mine.pid);
    mine.url = Some(url);
    let mut tick = tokio::time::interval(presence::EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stopped.wait_for(|s| *s) => break,
        }
        let now = parse::now();
        let step = async {
            presence::announce(&*store, &name, &mine, now).await?;
            presence::order(&*store, &name, &mine, now).await
        };
        let asked = tokio::select! {
            asked = step => asked,
            _ = stopped.wait_for(|s| *s) => break,
        };
        match asked {
            Ok(Some(order)) if order.order == "drain" => {
                tracing::info!(by = order.by, "asked to stop");
                break;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(code = %error.code, "presence was not kept: {error}"),
        }
    }
    stop.send_replace(true);
    // A store that does not answer must not hold up the end: the record expires.
    let _ = tokio::time::timeout(FAREWELL, presence::withdraw(&*store, &name)).await;
}

/// Requests to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_names() {
        assert!(
            address("127.0.0.1:0").is_ok() && address("localhost:1").is_ok() && address("[::1]:1").is_ok()
        );
        for bad in ["", "7433", "127.0.0.1", "127.0.0.1:99999"] {
            assert_eq!(address(bad).unwrap_err().code(), codes::INVALID_SETTING, "{bad}");
        }
    }
}
