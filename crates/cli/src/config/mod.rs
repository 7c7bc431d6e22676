//! What is in force: flags beat the environment beats the file beats the defaults, for each setting by itself, and
//! for each it is known where it came from.

mod file;
mod nearest;
mod settings;

use std::fmt;
use std::path::{Path, PathBuf};

use tidegate_core::codes;
use tidegate_core::time::Millis;

pub(crate) use nearest::nearest;
pub(crate) use settings::{Holds, SETTINGS, Setting};

use crate::args::Global;
use crate::error::{Failure, Result};

/// Names the file, if `--config` does not.
const FILE_VARIABLE: &str = "TIDEGATE_CONFIG";
/// The file of a directory.
const LOCAL_FILE: &str = "tidegate.toml";
/// The file of a user, under the configuration directory.
const USER_FILE: &str = "tidegate/config.toml";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A flag.
    Flag(&'static str),
    /// A variable.
    Environment(&'static str),
    /// A line of the file.
    File(PathBuf, usize),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting as it is in force.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    /// Which.
    pub(crate) setting: &'static Setting,
    /// Its value as text; checked.
    pub(crate) text: Option<String>,
    /// Where it came from.
    pub(crate) source: Source,
}

/// Everything that is in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    values: Vec<Value>,
    /// The file that was read, if there is one.
    pub(crate) file: Option<PathBuf>,
}

impl Config {
    /// Reads the file and the environment, and puts the global flags over them.
    pub(crate) fn load(global: &Global) -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let file = named_file(global, &variable).or_else(|| found_file(&variable));
        let mut config = Self::resolve(file.as_deref(), &variable)?;
        let dir = global.dir.as_ref().map(|d| d.to_string_lossy().into_owned());
        config.flag("store", "--dir", dir.as_deref())?;
        config.flag("store", "--store", global.store.as_deref())?;
        config.flag("key", "--key", global.key.as_deref())?;
        Ok(config)
    }

    /// File and environment.
    fn resolve(path: Option<&Path>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let entries = path.map(read_file).transpose()?.unwrap_or_default();
        let mut values = Vec::with_capacity(SETTINGS.len());
        for setting in SETTINGS {
            let from_env = setting.env.iter().find_map(|name| Some((*name, variable(name)?)));
            let from_file = entries.iter().find(|e| e.key == setting.key).zip(path);
            let (text, source) = match (from_env, from_file) {
                (Some((name, text)), _) => {
                    setting.holds.check(&text).map_err(|why| {
                        Failure::new(codes::INVALID_SETTING, format!("environment variable {name}: {why}"))
                            .hint("`tidegate config show` lists every setting and where it comes from")
                    })?;
                    (Some(text), Source::Environment(name))
                }
                (None, Some((entry, path))) => {
                    (Some(entry.text.clone()), Source::File(path.to_owned(), entry.line))
                }
                (None, None) => (setting.default.map(str::to_owned), Source::Default),
            };
            values.push(Value { setting, text, source });
        }
        Ok(Self { values, file: path.map(Path::to_owned) })
    }

    /// Puts a flag over what is there, if it was given.
    pub(crate) fn flag(&mut self, key: &str, flag: &'static str, given: Option<&str>) -> Result<()> {
        let Some(given) = given else { return Ok(()) };
        let value = self.values.iter_mut().find(|v| v.setting.key == key);
        let value = value.ok_or_else(|| Failure::new(codes::INTERNAL, format!("no setting {key}")))?;
        value.setting.holds.check(given).map_err(|why| {
            Failure::new(codes::INVALID_SETTING, format!("{flag}: {why}")).hint(value.setting.holds.hint())
        })?;
        value.text = Some(given.to_owned());
        value.source = Source::Flag(flag);
        Ok(())
    }

    /// All of it, in the order of the table.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    pub(crate) fn value(&self, key: &str) -> &Value {
        let found = self.values.iter().find(|v| v.setting.key == key);
        found.unwrap_or_else(|| unreachable!("{key} is not in the table of settings"))
    }

    /// The value of a setting as text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.value(key).text.as_deref()
    }

    /// Whether a flag said it.
    pub(crate) fn is_flag(&self, key: &str) -> bool {
        matches!(self.value(key).source, Source::Flag(_))
    }

    /// A number; it was checked and has a default.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.text(key).and_then(|t| t.parse().ok()).unwrap_or_default()
    }

    /// A span in milliseconds; it was checked and has a default.
    pub(crate) fn span_ms(&self, key: &str) -> i64 {
        self.text(key).and_then(|t| t.parse().ok()).map_or(0, |Millis(ms)| ms)
    }

    /// Names.
    pub(crate) fn names(&self, key: &str) -> Vec<&str> {
        let text = self.text(key).unwrap_or_default();
        text.split(',').map(str::trim).filter(|n| !n.is_empty()).collect()
    }
}

fn named_file(global: &Global, variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    global.config.clone().or_else(|| variable(FILE_VARIABLE).map(PathBuf::from))
}

/// A file that nobody named is read only if it is there.
fn found_file(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let home = || variable("HOME").map(|h| PathBuf::from(h).join(".config"));
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home).map(|d| d.join(USER_FILE));
    [Some(PathBuf::from(LOCAL_FILE)), user].into_iter().flatten().find(|p| p.is_file())
}

fn read_file(path: &Path) -> Result<Vec<file::Entry>> {
    let text = file::read(path).map_err(|e| {
        Failure::new(
            codes::INVALID_REQUEST,
            format!("the configuration {} could not be read: {e}", path.display()),
        )
        .hint("check the path in --config or TIDEGATE_CONFIG")
    })?;
    file::parse(&text).map_err(|problems| {
        let shown = path.display();
        let said = |p: &file::Problem| format!("{shown}:{}: {}", p.line, p.what);
        let mut failure = Failure::new(codes::INVALID_SETTING, said(&problems[0]));
        for problem in &problems[1..] {
            failure = failure.detail(said(problem));
        }
        failure.hint("`tidegate config show --help` lists every setting; nothing was done")
    })
}

/// Checks one file by itself and says how many settings it holds.
pub(crate) fn check_file(path: &Path) -> Result<usize> {
    Ok(read_file(path)?.len())
}

/// A store's URL without its password.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // Up to the last @: a password may hold anything, even unescaped.
    let (user, rest) = match rest.rsplit_once('@') {
        // This @ may be in a password that is a parameter, so what follows may be the rest of it.
        Some((before, _)) if before.contains("pass") && before.contains('=') => {
            return format!("{scheme}://•••");
        }
        Some((user, rest)) => (format!("{}@", without_secret(scheme, user)), rest),
        None => (String::new(), rest),
    };
    let (main, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    // libpq also takes the password as a parameter, and so do sockets of Redis.
    let tail =
        ["password=", "pass="].iter().fold(tail.to_owned(), |tail, name| match tail.split_once(name) {
            Some((front, secret)) => {
                let rest = secret.find('&').map_or("", |i| &secret[i..]);
                format!("{front}{name}•••{rest}")
            }
            None => tail,
        });
    format!("{scheme}://{user}{main}{tail}")
}

/// What stands before the last @ of an address, as it may be shown.
fn without_secret(scheme: &str, user: &str) -> String {
    let (name, password) =
        user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-+%".contains(c));
    match password {
        Some(_) if plain => format!("{name}:•••"),
        // For Redis many write a password where the name belongs.
        None if plain && !scheme.starts_with("redis") => name.to_owned(),
        _ => "•••".into(),
    }
}

impl Value {
    /// The value as it may be shown: no secrets.
    pub(crate) fn shown(&self) -> Option<String> {
        let text = self.text.as_deref()?;
        Some(match self.setting.holds {
            Holds::Secret => "•••".into(),
            Holds::Store | Holds::Gates | Holds::Url => without_password(text),
            _ => text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidegate.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn flags_beat_the_environment_beats_the_file_beats_the_defaults() {
        let (_dir, path) = written("store = \"from-file\"\n[worker]\nconcurrency = 3\nlease = \"5s\"\n");
        let environment = |name: &str| match name {
            "TIDEGATE_STORE" => Some("from-environment".to_owned()),
            "TIDEGATE_CONCURRENCY" => Some("4".to_owned()),
            _ => None,
        };
        let mut config = Config::resolve(Some(&path), &environment).unwrap();
        config.flag("store", "--store", Some("from-flag")).unwrap();
        config.flag("worker.drain", "--drain", None).unwrap();
        let seen = |key: &str| {
            let value = config.value(key);
            (value.text.clone().unwrap_or_default(), value.source.clone())
        };
        assert_eq!(seen("store"), ("from-flag".into(), Source::Flag("--store")));
        assert_eq!(seen("worker.concurrency"), ("4".into(), Source::Environment("TIDEGATE_CONCURRENCY")));
        assert_eq!(seen("worker.lease"), ("5s".into(), Source::File(path.clone(), 4)));
        assert_eq!(seen("worker.drain"), ("45s".into(), Source::Default));
        assert_eq!((config.count("worker.concurrency"), config.span_ms("worker.lease")), (4, 5_000));
    }

    #[test]
    fn a_bad_variable_or_flag_is_named() {
        let bad = |name: &str| (name == "TIDEGATE_LEASE").then(|| "soon".to_owned());
        let failure = Config::resolve(None, &bad).unwrap_err();
        assert_eq!(failure.code(), codes::INVALID_SETTING);
        assert!(failure.json().to_string().contains("TIDEGATE_LEASE"));
        let mut config = Config::resolve(None, &|_| None).unwrap();
        assert!(config.flag("worker.concurrency", "--concurrency", Some("0")).is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://me:s3cret@db/jobs?a=b", "postgres://me:•••@db/jobs?a=b"),
            ("postgres://db/jobs?password=s3cret&x=1", "postgres://db/jobs?password=•••&x=1"),
            ("postgres://me:p@s/s@db/jobs", "postgres://me:•••@db/jobs"),
            ("postgres://me:s3#cr?et@db/jobs", "postgres://me:•••@db/jobs"),
            ("postgres://db/jobs?password=s3c@ret", "postgres://•••"),
            ("postgres://db:5432/jobs?password=ab@cdefgh", "postgres://•••"),
            ("redis+unix:///run/redis.sock?pass=p4ss@w0rd", "redis+unix://•••"),
            ("postgres://me@db/jobs", "postgres://me@db/jobs"),
            ("redis://s3cret@cache:6379/1", "redis://•••@cache:6379/1"),
            (
                "redis+unix:///run/redis.sock?db=1&pass=s3cret&user=me",
                "redis+unix:///run/redis.sock?db=1&pass=•••&user=me",
            ),
            ("http://host:7474", "http://host:7474"),
            ("./tidegate-data", "./tidegate-data"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
