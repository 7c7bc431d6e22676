//! The alerts file: rules over the shipped ones, channels, how many workers there should be.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tidegate_core::alerts::{self, Rule, RulePatch};
use tidegate_core::codes;
use tidegate_core::near::nearest;
use tidegate_core::time::Millis;
use tidegate_store::params::KindView;
use tidegate_store::{Error, Result};
use tidegate_wire::alerts::ChannelView;

use crate::outgoing::Client;

/// Most channels.
const MAX_CHANNELS: usize = 50;
/// Where events go unless the channel says otherwise.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";
/// Time between two evaluations, and its bounds.
const EVERY_MS: (i64, i64, i64) = (100, 5_000, 300_000);

/// How alerts are set up. The default: what ships, told to the log.
#[derive(Debug, Clone)]
pub struct AlertSettings {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Where tellings go, by name.
    pub channels: BTreeMap<String, Channel>,
    /// Workers that there should be.
    pub expected_workers: Option<u64>,
    /// Workers that there should be for a queue.
    pub queue_workers: BTreeMap<String, u64>,
    /// What a runbook's name is put behind, to make a link.
    pub runbooks: String,
    /// Time between two evaluations, in milliseconds.
    pub every_ms: i64,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            rules: alerts::shipped(),
            channels: BTreeMap::new(),
            expected_workers: None,
            queue_workers: BTreeMap::new(),
            runbooks: "docs/runbooks/".into(),
            every_ms: EVERY_MS.1,
        }
    }
}

/// A place where tellings go. What it shows of itself has no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Channel {
    /// The log of the process that found it.
    Log,
    /// A webhook that takes `{"text": …}`.
    Slack {
        /// Its URL; a secret.
        url: String,
    },
    /// Events API v2.
    PagerDuty {
        /// Where events go.
        url: String,
        /// The key of the integration; a secret.
        routing_key: String,
    },
    /// Any URL, signed if there is a secret.
    Webhook {
        /// Its URL; a secret, since many carry a token.
        url: String,
        /// Key of the signature.
        secret: Option<String>,
    },
}

impl Channel {
    /// Its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Slack { .. } => "slack",
            Self::PagerDuty { .. } => "pagerduty",
            Self::Webhook { .. } => "webhook",
        }
    }

    /// Where it goes: the host, and no more.
    pub fn host(&self) -> Option<String> {
        let url = match self {
            Self::Log => return None,
            Self::Slack { url } | Self::PagerDuty { url, .. } | Self::Webhook { url, .. } => url,
        };
        url.parse::<hyper::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned))
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind(), self.host().as_deref().unwrap_or("the log"))
    }
}

/// The file as far as it can be read: a mistake in one place hides none in another.
#[derive(Default)]
struct File {
    expected_workers: Option<u64>,
    queue_workers: BTreeMap<String, u64>,
    runbooks: Option<String>,
    every: Option<String>,
    channels: BTreeMap<String, ChannelFile>,
    rules: BTreeMap<String, RulePatch>,
}

const SETTINGS: [&str; 6] = ["expected_workers", "queue_workers", "runbooks", "every", "channels", "rules"];

impl File {
    fn read(table: &Map<String, Value>, wrong: &mut Vec<String>) -> Self {
        unknown("", table, &SETTINGS, wrong);
        let mut file = Self {
            expected_workers: field(table, "expected_workers", wrong),
            queue_workers: field(table, "queue_workers", wrong).unwrap_or_default(),
            runbooks: field(table, "runbooks", wrong),
            every: field(table, "every", wrong),
            ..Self::default()
        };
        for (name, channel) in inner(table, "channels", wrong).into_iter().flatten() {
            file.channels.extend(ChannelFile::read(name, channel, wrong).map(|read| (name.clone(), read)));
        }
        if let Some(rules) = inner(table, "rules", wrong) {
            let (read, unreadable) = RulePatch::read_all(rules);
            file.rules = read;
            wrong.extend(unreadable.into_iter().map(|why| format!("rules.{why}")));
        }
        file
    }
}

/// Notes settings that there are not.
fn unknown(path: &str, table: &Map<String, Value>, known: &[&str], wrong: &mut Vec<String>) {
    for name in table.keys().filter(|name| !known.contains(&name.as_str())) {
        let meant = nearest(name, known.iter().copied()).map_or_else(
            || format!("there are {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        wrong.push(format!("{path}{name}: there is no such setting; {meant}"));
    }
}

fn field<T: DeserializeOwned>(table: &Map<String, Value>, name: &str, wrong: &mut Vec<String>) -> Option<T> {
    let value = table.get(name)?.clone();
    serde_json::from_value(value).map_err(|e| wrong.push(format!("{name}: {e}"))).ok()
}

fn inner<'t>(
    table: &'t Map<String, Value>,
    name: &str,
    wrong: &mut Vec<String>,
) -> Option<&'t Map<String, Value>> {
    let value = table.get(name)?;
    if value.as_object().is_none() {
        wrong.push(format!("{name}: it should be a table"));
    }
    value.as_object()
}

#[derive(Default)]
struct ChannelFile {
    kind: String,
    url: Option<String>,
    url_env: Option<String>,
    routing_key: Option<String>,
    routing_key_env: Option<String>,
    secret: Option<String>,
    secret_env: Option<String>,
}

impl ChannelFile {
    /// Reads a channel; `None` if something of it is wrong. What is there may be a secret and is not repeated.
    fn read(name: &str, value: &Value, wrong: &mut Vec<String>) -> Option<Self> {
        let path = format!("channels.{name}.");
        let Some(table) = value.as_object() else {
            wrong.push(format!("channels.{name}: it should be a table"));
            return None;
        };
        let before = wrong.len();
        let mut channel = Self::default();
        let mut kind = None;
        let fields = [
            ("type", &mut kind),
            ("url", &mut channel.url),
            ("url_env", &mut channel.url_env),
            ("routing_key", &mut channel.routing_key),
            ("routing_key_env", &mut channel.routing_key_env),
            ("secret", &mut channel.secret),
            ("secret_env", &mut channel.secret_env),
        ];
        unknown(&path, table, &fields.each_ref().map(|(name, _)| *name), wrong);
        for (field, place) in fields {
            match table.get(field).map(Value::as_str) {
                Some(Some(text)) => *place = Some(text.to_owned()),
                Some(None) => wrong.push(format!("{path}{field}: it should be text")),
                None => {}
            }
        }
        channel.kind = kind.unwrap_or_default();
        (wrong.len() == before).then_some(channel)
    }

    fn channel(self, env: &dyn Fn(&str) -> Option<String>) -> std::result::Result<Channel, String> {
        let from = |name: &str, given: Option<String>, variable: Option<String>| match (given, variable) {
            (Some(_), Some(_)) => Err(format!("`{name}` and `{name}_env` exclude each other")),
            (Some(text), None) => Ok(Some(text)),
            (None, None) => Ok(None),
            (None, Some(variable)) => match env(&variable).filter(|text| !text.trim().is_empty()) {
                Some(text) => Ok(Some(text.trim().to_owned())),
                None => Err(format!("`{name}_env`: the variable {variable} is not set")),
            },
        };
        let url = from("url", self.url, self.url_env)?;
        // The text may hold a token: it is not repeated.
        let bad = url.as_deref().is_some_and(|url| Client::check(url).is_err());
        if bad {
            return Err("`url` is not an http:// or https:// URL".into());
        }
        let routing_key = from("routing_key", self.routing_key, self.routing_key_env)?;
        let secret = from("secret", self.secret, self.secret_env)?;
        let url_of = |url: Option<String>| url.ok_or_else(|| "needs a `url` or a `url_env`".to_owned());
        match (self.kind.as_str(), routing_key, secret) {
            ("log", None, None) if url.is_none() => Ok(Channel::Log),
            ("slack", None, None) => Ok(Channel::Slack { url: url_of(url)? }),
            ("webhook", None, secret) => Ok(Channel::Webhook { url: url_of(url)?, secret }),
            ("pagerduty", Some(routing_key), None) => {
                Ok(Channel::PagerDuty { url: url.unwrap_or_else(|| PAGERDUTY.into()), routing_key })
            }
            ("pagerduty", None, None) => Err("needs a `routing_key` or a `routing_key_env`".into()),
            ("log" | "slack" | "webhook" | "pagerduty", ..) => {
                Err(format!("has a setting that no channel of type {} has", self.kind))
            }
            _ => Err("`type` is one of log, slack, pagerduty, webhook".into()),
        }
    }
}

impl AlertSettings {
    /// Reads the alerts file. Every error is named, one on a line; what variables hold is asked of `env`.
    pub fn from_toml(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let refuse = |why: String| Error::new(codes::INVALID_SETTING, why);
        // The text of the error would show the line, and the line may hold a secret.
        let table: Map<String, Value> = toml::from_str(text).map_err(|e| refuse(without_line(text, &e)))?;
        let mut wrong = vec![];
        let file = File::read(&table, &mut wrong);
        let mut settings = Self {
            expected_workers: file.expected_workers,
            queue_workers: file.queue_workers,
            ..Self::default()
        };
        if file.channels.len() > MAX_CHANNELS {
            wrong.push(format!("channels: at most {MAX_CHANNELS}"));
        }
        for (name, channel) in file.channels {
            match channel.channel(env) {
                Ok(channel) => drop(settings.channels.insert(name, channel)),
                Err(why) => wrong.push(format!("channels.{name}: {why}")),
            }
        }
        if let Some(every) = file.every {
            match every.parse::<Millis>() {
                Ok(Millis(ms)) if (EVERY_MS.0..=EVERY_MS.2).contains(&ms) => settings.every_ms = ms,
                _ => wrong.push("every: a span from 100ms to 5m".into()),
            }
        }
        if let Some(base) = file.runbooks {
            settings.runbooks = base;
        }
        match alerts::merged(alerts::shipped(), file.rules) {
            Ok(rules) => settings.rules = rules,
            Err(more) => wrong.extend(more),
        }
        if wrong.is_empty() { Ok(settings) } else { Err(refuse(wrong.join("\n"))) }
    }

    /// The rules together with those that documents gave to kinds.
    pub fn in_force(&self, kinds: &[KindView]) -> Vec<Rule> {
        let managed = kinds.iter().filter(|k| k.settings.managed && !k.settings.alerts.is_empty());
        let alerts = managed.map(|k| (k.name.as_str(), k.settings.timeout_ms, &k.settings.alerts));
        alerts::in_force(&self.rules, alerts)
    }

    /// A channel; one that is not set up is the log.
    pub fn channel(&self, name: &str) -> &Channel {
        self.channels.get(name).unwrap_or(&Channel::Log)
    }

    /// The channels as they may be shown: those that are set up, and those that rules name.
    pub fn shown(&self, rules: &[Rule]) -> Vec<ChannelView> {
        let named = rules.iter().flat_map(|r| &r.channels).chain(self.channels.keys());
        let names: std::collections::BTreeSet<&String> = named.collect();
        let view = |name: &String| {
            let channel = self.channel(name);
            ChannelView { name: name.clone(), kind: channel.kind().into(), to: channel.host() }
        };
        names.into_iter().map(view).collect()
    }
}

fn without_line(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
    format!("line {line}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        expected_workers = 3
        queue_workers = { billing = 2 }
        [channels.slack]
        type = "slack"
        url_env = "SLACK_URL"
        [channels.pagerduty]
        type = "pagerduty"
        routing_key = "R0UTING"
        [channels.ops]
        type = "webhook"
        url = "https://user:pa55@ops.example/hook/t0ken"
        secret = "s3cret"
        [rules.queue_depth_high]
        condition = "waiting > 50"
        channels = ["ops"]
    "#;

    fn env(name: &str) -> Option<String> {
        (name == "SLACK_URL").then(|| "https://hooks.slack.com/services/T0/B0/XyZ".to_owned())
    }

    #[test]
    fn a_file_is_read_and_its_secrets_are_not_shown() {
        let settings = AlertSettings::from_toml(FILE, &env).unwrap();
        assert_eq!(settings.channel("slack").kind(), "slack");
        assert_eq!(settings.channel("nobody"), &Channel::Log);
        let shown = format!("{settings:?} {:?}", settings.shown(&settings.rules));
        for secret in ["XyZ", "R0UTING", "t0ken", "s3cret", "pa55"] {
            assert!(!shown.contains(secret), "{secret}");
        }
        assert!(shown.contains("hooks.slack.com") && shown.contains("ops.example"), "{shown}");
        assert_eq!(settings.rules.iter().find(|r| r.id == "queue_depth_high").unwrap().channels, ["ops"]);
    }

    #[test]
    fn every_error_is_named_and_none_shows_a_secret() {
        for (file, why) in [
            ("[channels.a]\ntype = \"slack\"", "channels.a: needs a `url`"),
            ("[channels.a]\ntype = \"slack\"\nurl_env = \"NOBODY\"", "NOBODY is not set"),
            ("[channels.a]\ntype = \"slack\"\nurl = \"ftp://t0ken\"", "not an http://"),
            ("[channels.a]\ntype = \"carrier pigeon\"", "one of log"),
            (
                "[channels.a]\ntype = \"slack\"\nurl = \"http://h/t0ken\"\nsecret = \"t0ken\"",
                "no channel of type",
            ),
            ("[channels.a]\nurl = 7 # t0ken", "channels.a.url: it should be text"),
            (
                "[channels.a]\nsecret = 7100 # t0ken\nkind = \"log\"",
                "channels.a.kind: there is no such setting",
            ),
            ("channels = 7", "channels: it should be a table"),
            (
                "[rules.mine]\ncondition = \"oldest_ready > 300\"",
                "rules.mine.condition: \"300\" does not fit",
            ),
            ("[rules.mine\n# t0ken", "line 1"),
            ("[rules.mine]\nseverity = \"warning\"", "rules.mine: a rule of one's own"),
            ("every = \"1ms\"", "every"),
            ("colour = 1", "colour: there is no such setting; there are expected_workers"),
        ] {
            let error = AlertSettings::from_toml(file, &env).unwrap_err().to_string();
            assert!(error.contains(why), "{file}: {error}");
            assert!(!error.contains("t0ken") && !error.contains("7100"), "{error}");
        }
    }

    #[test]
    fn all_errors_of_a_file_are_named_at_once() {
        let file = "expected_workers = \"three\"\nevry = \"5s\"\n[channels.a]\ntype = 7\n[channels.b]\ntype = \"slack\"\n\
             [rules.queue_depth_high]\ncondition = \"waiting > 5m\"\nseverty = \"warning\"\n[rules.mine]\nfor = \"soon\"\n";
        let error = AlertSettings::from_toml(file, &env).unwrap_err();
        let places: Vec<&str> = error.detail.lines().filter_map(|line| line.split(':').next()).collect();
        let expected = [
            "evry",
            "expected_workers",
            "channels.a.type",
            "rules.queue_depth_high.condition",
            "rules.queue_depth_high.severty",
            "channels.b",
            "rules.mine",
        ];
        assert_eq!(places, expected, "{error}");
    }
}
