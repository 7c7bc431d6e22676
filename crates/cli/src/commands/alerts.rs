//! `tidegate alerts`: what is open, the rules, silences, trying a channel.

use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::json;
use tidegate_core::alerts::Rule;
use tidegate_core::codes;
use tidegate_core::time::Millis;
use tidegate_server::alerts::{self, AlertSettings};
use tidegate_wire::alerts::{Alert, NewSilence, Rules, SilenceView};

use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, short_when};
use crate::parse;

/// Commands on alerts.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List alerts that are open or about to be, the worst first
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate alerts ls
  tidegate alerts ls --json | jq -r '.alerts[] | select(.phase == \"firing\") | .message'"
    )]
    Ls,
    /// List the rules and the channels
    #[command(after_help = "Examples:
  tidegate alerts rules
  tidegate alerts rules --alerts-file alerts.toml    check a file before a server reads it")]
    Rules {
        /// Rules and channels of alerts (TOML), instead of the server's
        #[arg(long, value_name = "FILE")]
        alerts_file: Option<String>,
    },
    /// List silences that have not ended
    #[command(after_help = "Examples:
  tidegate alerts silences")]
    Silences,
    /// Tell nobody for a while
    #[command(after_help = "Examples:
  tidegate alerts silence queue_depth_high --for 2h --why 'migration'
  tidegate alerts silence --target queue:billing --for 30m --why 'they are on it'

What still goes on when it ends is told then. Neither a rule nor a target: everything.")]
    Silence {
        /// The rule; every one if not given
        rule: Option<String>,
        /// What it is about: system, queue:NAME, kind:NAME or domain:NAME
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        /// How long, at most 30 days
        #[arg(long = "for", value_name = "SPAN")]
        lasts: String,
        /// Why, for others
        #[arg(long, value_name = "TEXT")]
        why: String,
        /// Who asks
        #[arg(long, value_name = "NAME", default_value = "operator")]
        by: String,
    },
    /// End a silence
    #[command(after_help = "Examples:
  tidegate alerts unsilence sil_0123456789ab")]
    Unsilence {
        /// Id of the silence, as `alerts silences` shows it
        id: String,
    },
    /// Send a test to a channel, the way alerts go
    #[command(after_help = "Examples:
  tidegate alerts test slack")]
    Test {
        /// Name of the channel
        channel: String,
        /// Rules and channels of alerts (TOML), for a store without a server
        #[arg(long, value_name = "FILE")]
        alerts_file: Option<String>,
    },
}

/// The alerts file of the settings, or what ships.
pub(crate) fn settings(config: &Config) -> Result<AlertSettings> {
    let Some(file) = config.text("alerts.file") else { return Ok(AlertSettings::default()) };
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::new(codes::INVALID_SETTING, format!("the alerts file {file} cannot be read: {e}"))
    })?;
    AlertSettings::from_toml(&text, &|name| std::env::var(name).ok()).map_err(|e| {
        // One mistake in the sentence itself, several below it.
        let said = match e.detail.lines().count() {
            0 | 1 => format!("the alerts file {file}: {}", e.detail),
            n => format!("the alerts file {file} has {n} mistakes\n{}", e.detail),
        };
        Failure::new(e.code, said).hint("docs/guides/observing.md has an example")
    })
}

/// Runs a command on alerts.
pub(crate) async fn run(command: AlertsCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        AlertsCommand::Ls => ls(config, output).await,
        AlertsCommand::Rules { alerts_file } => rules(alerts_file, config, output).await,
        AlertsCommand::Silences => silences(config, output).await,
        AlertsCommand::Silence { rule, target, lasts, why, by } => {
            let for_ms = u64::try_from(parse::span(&lasts)?).unwrap_or_default();
            silence(NewSilence { rule, target, for_ms, why, by: Some(by) }, config, output).await
        }
        AlertsCommand::Unsilence { id } => unsilence(&id, config, output).await,
        AlertsCommand::Test { channel, alerts_file } => test(&channel, alerts_file, config, output).await,
    }
}

fn is_remote(config: &Config) -> Result<bool> {
    Ok(matches!(data::target(config)?, Target::Remote(_)))
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let remote = is_remote(config)?;
    let open = if remote {
        data::remote(config).await?.alerts().await?
    } else {
        let data = data::existing(config).await?;
        let open = alerts::list(&*data.store, parse::now()).await?;
        data.close().await?;
        open
    };
    output.answer(&json!({ "alerts": open }), || {
        if open.is_empty() {
            let who = if remote {
                ""
            } else {
                " Rules are judged while a server runs on this store: `tidegate serve`."
            };
            return format!("No alerts.{who}");
        }
        table(&open, output)
    })
}

fn table(open: &[Alert], output: &Output) -> String {
    let mut table = Table::new(vec![
        Column::fixed("SEVERITY"),
        Column::fixed("RULE"),
        Column::fixed("TARGET"),
        Column::fixed("STATE"),
        Column::fixed("SINCE").optional(2),
        Column::text("MESSAGE", 20),
        Column::fixed("RUNBOOK").optional(1),
    ]);
    for alert in open {
        let state = if alert.silenced { format!("{}, silenced", alert.phase) } else { alert.phase.clone() };
        table.row(vec![
            alert.severity.clone(),
            alert.rule.clone(),
            alert.target.clone(),
            state,
            short_when(alert.since.0, parse::now()),
            alert.message.clone(),
            alert.runbook.clone(),
        ]);
    }
    table.render(output)
}

async fn rules(file: Option<String>, config: &Config, output: &Output) -> Result<()> {
    let mut config = config.clone();
    config.flag("alerts.file", "--alerts-file", file.as_deref())?;
    let rules = if file.is_none() && is_remote(&config)? {
        data::remote(&config).await?.alert_rules().await?
    } else {
        let settings = settings(&config)?;
        // Without a store there are no kinds that could have alerts.
        let kinds = match data::existing(&config).await {
            Ok(data) => {
                let kinds = data.store.kinds().await;
                data.close().await?;
                kinds?
            }
            Err(_) => vec![],
        };
        let rules = settings.in_force(&kinds);
        Rules { channels: settings.shown(&rules), rules }
    };
    output.answer(&rules, || {
        let mut table = Table::new(vec![
            Column::fixed("RULE"),
            Column::text("CONDITION", 20),
            Column::fixed("FOR"),
            Column::fixed("SEVERITY"),
            Column::fixed("CHANNELS").optional(2),
            Column::fixed("RUNBOOK").optional(1),
        ]);
        for rule in &rules.rules {
            table.row(row(rule));
        }
        let mut text = table.render(output);
        text.push('\n');
        for channel in &rules.channels {
            let to = channel.to.as_deref().map_or(String::new(), |host| format!(" at {host}"));
            let _ = writeln!(text, "Channel {}: {}{to}", channel.name, channel.kind);
        }
        text
    })
}

fn row(rule: &Rule) -> Vec<String> {
    let on = if rule.on.is_empty() { String::new() } else { format!(" ({})", rule.on.join(", ")) };
    vec![
        rule.id.clone(),
        format!("{}{on}", rule.condition),
        if rule.for_ms == 0 { "–".into() } else { Millis(rule.for_ms).to_string() },
        if rule.enabled { rule.severity.as_str().to_owned() } else { "off".into() },
        rule.channels.join(", "),
        rule.runbook.clone(),
    ]
}

async fn silences(config: &Config, output: &Output) -> Result<()> {
    let silences = if is_remote(config)? {
        data::remote(config).await?.silences().await?
    } else {
        let data = data::existing(config).await?;
        let silences = alerts::list_silences(&*data.store, parse::now()).await?;
        data.close().await?;
        silences
    };
    output.answer(&json!({ "silences": silences }), || {
        if silences.is_empty() {
            return "Nothing is silenced.".into();
        }
        silences.iter().map(|s| sentence(s) + "\n").collect()
    })
}

fn sentence(s: &SilenceView) -> String {
    let what = match (&s.rule, &s.target) {
        (None, None) => "everything".to_owned(),
        (Some(rule), None) => rule.clone(),
        (None, Some(target)) => format!("everything about {target}"),
        (Some(rule), Some(target)) => format!("{rule} about {target}"),
    };
    format!("{}: {what} until {}, by {}: {}", s.id, s.until, s.by, s.why)
}

async fn silence(new: NewSilence, config: &Config, output: &Output) -> Result<()> {
    let silence = if is_remote(config)? {
        data::remote(config).await?.silence(&new).await?
    } else {
        let data = data::existing(config).await?;
        let by = new.by.clone().unwrap_or_default();
        let silence = alerts::silence(&*data.store, &settings(config)?, new, by, parse::now()).await;
        data.close().await?;
        silence?
    };
    output.answer(&silence, || format!("Silenced. {}", sentence(&silence)))
}

async fn unsilence(id: &str, config: &Config, output: &Output) -> Result<()> {
    if is_remote(config)? {
        data::remote(config).await?.unsilence(id).await?;
    } else {
        let data = data::existing(config).await?;
        let there = alerts::unsilence(&*data.store, id).await?;
        data.close().await?;
        if !there {
            return Err(Failure::new(codes::SILENCE_NOT_FOUND, format!("there is no silence {id:?}")));
        }
    }
    output.answer(&json!({ "id": id, "ended": true }), || format!("{id} is over."))
}

async fn test(channel: &str, file: Option<String>, config: &Config, output: &Output) -> Result<()> {
    let job = if is_remote(config)? {
        data::remote(config).await?.test_alert(channel).await?
    } else {
        let mut config = config.clone();
        config.flag("alerts.file", "--alerts-file", file.as_deref())?;
        let settings = settings(&config)?;
        let data = data::existing(&config).await?;
        let job = alerts::test(&*data.store, &settings, channel, parse::now()).await?;
        data.close().await?;
        job
    };
    output.answer(&json!({ "channel": channel, "job": job }), || match &job {
        Some(job) => format!("Under way to {channel}: `tidegate jobs show {job}` says whether it arrived."),
        None => format!("{channel} is a log; it is there."),
    })
}
