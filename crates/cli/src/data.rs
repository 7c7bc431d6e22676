//! The store that is meant: where it is, opening, closing and copying it. The only place that knows which stores there
//! are; everything else works on `Arc<dyn Store>`.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{RemoteGates, RemoteOptions, RemoteStore, Timeouts};
use tidegate_core::codes;
use tidegate_store::{MemoryStore, Store};
use tidegate_store_postgres::{PgOptions, PgStore};
use tidegate_store_sqlite::{OpenOptions, SqliteStore};

use crate::config::{Config, nearest, without_password};
use crate::error::{Failure, Result};
use crate::output::Bulk;
use crate::parse;

/// File that makes a directory a data directory.
const DATABASE: &str = "tidegate.db";
/// How long a command goes on trying while its server is out of reach: somebody waits in front of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Schemes of URLs that name a store.
const SCHEMES: [&str; 5] = ["sqlite", "postgres", "postgresql", "http", "https"];

/// Which store is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The embedded store in a directory.
    Directory(PathBuf),
    /// A Postgres database.
    Postgres(String),
    /// A server.
    Remote(String),
    /// This process, and gone with it.
    Memory,
}

impl Target {
    /// Reads a URL or a directory.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("sqlite: names no directory; write sqlite:PATH".into());
            }
            return Ok(Self::Directory(PathBuf::from(path)));
        }
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return if names_a_port(text) {
                Err(format!("{text} is no directory and no URL; did you mean http://{text}?"))
            } else if let Some(meant) = meant_for_a_server(text) {
                Err(format!("what is given is no directory and no URL; {meant}"))
            } else {
                Ok(Self::Directory(PathBuf::from(text)))
            };
        };
        match scheme {
            _ if rest.is_empty() => Err(format!("{scheme}:// names no host")),
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            "http" | "https" => Ok(Self::Remote(text.trim_end_matches('/').to_owned())),
            "redis" | "rediss" | "redis+unix" => Err(format!(
                "{scheme}:// is for gates (--gates), not for jobs; these are stored in a directory, sqlite:PATH, postgres://… or at http://…"
            )),
            other => {
                let shown: String = other.chars().take(40).collect();
                let meant =
                    nearest(&shown, SCHEMES).map_or(String::new(), |s| format!("; did you mean {s}://?"));
                Err(format!(
                    "{shown}:// is not a store (use a directory, sqlite:PATH, postgres://… or http://…){meant}"
                ))
            }
        }
    }

    /// The store as it may be shown.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Directory(dir) => dir.display().to_string(),
            Self::Postgres(url) | Self::Remote(url) => without_password(url),
            Self::Memory => "memory:".into(),
        }
    }

    /// Whether other processes can use it at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_) | Self::Remote(_))
    }
}

/// Whether it looks like `host:port`, which nobody calls a directory.
fn names_a_port(text: &str) -> bool {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(['/', '\\']));
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !Path::new(text).exists()
}

/// What to write instead of what was meant to be the address of a server and is none. It may have a password: nothing of it is shown, and
/// no directory gets its name.
fn meant_for_a_server(text: &str) -> Option<String> {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    if let Some(scheme) = scheme.filter(|scheme| SCHEMES.contains(scheme)) {
        return Some(format!("write {scheme}://…, with two slashes"));
    }
    let parameter =
        |word: &str| ["host=", "dbname=", "user=", "password="].iter().any(|p| word.starts_with(p));
    let user = text.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let server = text.split_whitespace().any(parameter) || user && !Path::new(text).exists();
    server.then(|| "write postgres://USER:PASSWORD@HOST/DATABASE".into())
}

/// An open store.
pub(crate) struct Data {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// Where it is.
    pub(crate) target: Target,
    /// The gates of a server.
    pub(crate) gates: Option<Arc<RemoteGates>>,
}

impl Data {
    /// A store that was just opened: its clock is the one to go by.
    fn opened(store: Arc<dyn Store>, target: Target) -> Self {
        parse::set_clock_ahead(store.clock_ahead_ms());
        Self { store, target, gates: None }
    }

    /// Lets go of it.
    pub(crate) async fn close(&self) -> Result<()> {
        Ok(self.store.close().await?)
    }
}

/// The store that is meant.
pub(crate) fn target(config: &Config) -> Result<Target> {
    Target::parse(config.text("store").unwrap_or_default())
        .map_err(|e| Failure::new(codes::INVALID_SETTING, e))
}

/// The directory that is meant, for what only an embedded store can do.
pub(crate) fn directory(config: &Config, what: &str) -> Result<PathBuf> {
    match target(config)? {
        Target::Directory(dir) => Ok(dir),
        Target::Memory => {
            Err(Failure::new(codes::INVALID_REQUEST, format!("{what} is for embedded directories"))
                .hint("name one with --dir: nothing of a store in memory is left when its process ends"))
        }
        Target::Postgres(_) => {
            Err(Failure::new(codes::INVALID_REQUEST, format!("{what} is for embedded directories"))
                .hint("Postgres has tools of its own: pg_dump and pg_restore"))
        }
        Target::Remote(_) => {
            Err(Failure::new(codes::INVALID_REQUEST, format!("{what} is for embedded directories"))
                .hint("run it on the server's machine, with --dir"))
        }
    }
}

/// Whether a directory holds data.
pub(crate) fn exists(dir: &Path) -> bool {
    dir.join(DATABASE).is_file()
}

/// The directory, if it holds data.
pub(crate) fn existing_directory(config: &Config, what: &str) -> Result<PathBuf> {
    let dir = directory(config, what)?;
    if exists(&dir) { Ok(dir) } else { Err(no_data(&dir)) }
}

fn no_data(dir: &Path) -> Failure {
    Failure::new(codes::NO_DATA, format!("no data at {}", dir.display()))
}

/// The directory that is meant, if there is no data in it yet.
pub(crate) fn missing(config: &Config) -> Result<Option<PathBuf>> {
    match target(config)? {
        Target::Directory(dir) if !exists(&dir) => Ok(Some(dir)),
        _ => Ok(None),
    }
}

/// A store with nothing in it: it says what a new one would say, and leaves nothing behind.
pub(crate) fn empty() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Opens a store that exists; never makes one.
pub(crate) async fn existing(config: &Config) -> Result<Data> {
    let target = target(config)?;
    match &target {
        Target::Directory(dir) if !exists(dir) => Err(no_data(dir)),
        Target::Postgres(url) => Ok(Data::opened(Arc::new(postgres(url, false).await?), target)),
        _ => open(target, config).await,
    }
}

/// Opens the store, making it if need be.
pub(crate) async fn open_or_create(config: &Config) -> Result<Data> {
    open(target(config)?, config).await
}

/// Opens this store, making it if need be.
pub(crate) async fn open(target: Target, config: &Config) -> Result<Data> {
    let (store, gates): (Arc<dyn Store>, _) = match &target {
        Target::Directory(dir) => (open_directory(dir).await?, None),
        Target::Memory => (Arc::new(MemoryStore::new()), None),
        Target::Remote(_) => {
            let store = remote(config).await?;
            let gates = Arc::new(store.gates());
            (Arc::new(store), Some(gates))
        }
        Target::Postgres(url) => (Arc::new(postgres(url, true).await?), None),
    };
    Ok(Data { gates, ..Data::opened(store, target) })
}

/// Opens the store for a server that will answer at this URL, making it if need be. Whoever tries to open the same
/// directory is told the URL.
pub(crate) async fn open_serving(config: &Config, url: Option<String>) -> Result<Data> {
    let target = target(config)?;
    let (Target::Directory(dir), Some(url)) = (&target, url) else {
        return open(target, config).await;
    };
    let dir = dir.clone();
    let opened = blocking(move || OpenOptions::new().url(url).open(dir, parse::now())).await?;
    Ok(Data::opened(Arc::new(opened.map_err(asked_elsewhere)?), target))
}

/// A store that is owned by a server can be asked there.
fn asked_elsewhere(error: tidegate_store::Error) -> Failure {
    let url = error.detail.split(" and answers at ").nth(1).filter(|_| error.code == codes::STORE_OWNED);
    let hint = url.map(|url| format!("ask its server: add --store {url}"));
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Connects to a database, whose clock is the one to go by. Without `migrate` its schema is taken as it is, and refused if it is missing or older.
pub(crate) async fn postgres(url: &str, migrate: bool) -> Result<PgStore> {
    let options = PgOptions::new().migrate(migrate).application_name("tidegate");
    let connected = PgStore::connect(url, options, parse::wall()).await;
    let store = connected.map_err(|e| match e.code {
        codes::STORE_FAILED if e.detail.starts_with("the schema is not up to date") => Failure::from(e)
            .hint("`tidegate migrate` brings it up to date, and so does the start of `serve` or `work`"),
        codes::STORE_UNREACHABLE => Failure::from(e)
            .hint("check host, port, database and password in the URL, and that Postgres runs there"),
        _ => Failure::from(e),
    })?;
    parse::set_clock_ahead(store.clock_ahead_ms());
    Ok(store)
}

/// Connects to the server that is meant, whose clock is the one to go by.
pub(crate) async fn remote(config: &Config) -> Result<RemoteStore> {
    let options = RemoteOptions {
        key: config.text("key").map(str::to_owned),
        ca: config.text("ca").map(PathBuf::from),
        timeouts: Timeouts { patience: PATIENCE, ..Timeouts::default() },
    };
    let store = RemoteStore::connect(config.text("store").unwrap_or_default(), options).await?;
    parse::set_clock_ahead(store.clock_ahead_ms());
    Ok(store)
}

/// Opens the store that a flag names, if one does, for what must not touch the usual one by accident. It must be
/// empty.
pub(crate) async fn named_and_empty(config: &Config, what: &str) -> Result<Option<Data>> {
    if !config.is_flag("store") {
        return Ok(None);
    }
    let target = target(config)?;
    let shown = target.shown();
    let taken = || {
        Failure::new(codes::DATA_EXISTS, format!("{shown} holds data already"))
            .hint(format!("{what} wants a store of its own: name a new one, or leave it out"))
    };
    if matches!(&target, Target::Directory(dir) if exists(dir)) {
        return Err(taken());
    }
    let data = open(target, config).await?;
    if !data.store.queues(parse::now()).await?.is_empty() {
        data.close().await?;
        return Err(taken());
    }
    Ok(Some(data))
}

/// Opens an embedded directory, making it if need be.
pub(crate) async fn open_directory(dir: &Path) -> Result<Arc<dyn Store>> {
    let dir = dir.to_owned();
    let opened = blocking(move || SqliteStore::open(dir, parse::now())).await?;
    Ok(Arc::new(opened.map_err(asked_elsewhere)?))
}

/// What became of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It is there.
    Whole,
    /// Ctrl-C; nothing is there.
    Interrupted,
}

/// Thrown through a copy to end it early.
struct Stop;

/// Copies a data directory, whoever owns it, into a file that must not exist.
pub(crate) async fn backup(dir: PathBuf, file: PathBuf, bulk: Arc<Bulk>) -> Result<Copied> {
    let copy = tokio::task::spawn_blocking(move || {
        tidegate_store_sqlite::backup(&dir, &file, |done, total| {
            bulk.set(done, total);
            if bulk.interrupted() {
                // A copy has no other way to be stopped. Unwinding removes the half-written file.
                resume_unwind(Box::new(Stop));
            }
        })
    });
    match copy.await {
        Ok(done) => Ok(done.map(|()| Copied::Whole)?),
        Err(e) => match e.try_into_panic() {
            Ok(panic) if panic.is::<Stop>() => Ok(Copied::Interrupted),
            Ok(panic) => resume_unwind(panic),
            Err(e) => Err(Failure::new(codes::INTERNAL, e.to_string())),
        },
    }
}

/// Makes a data directory from a backup.
pub(crate) async fn restore(file: &Path, dir: &Path) -> Result<()> {
    let (file, dir) = (file.to_owned(), dir.to_owned());
    Ok(blocking(move || tidegate_store_sqlite::restore(&file, &dir, parse::now())).await??)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{ColorChoice, Output};

    #[test]
    fn stores_are_named_by_url_or_directory() {
        let directory = |p: &str| Ok(Target::Directory(PathBuf::from(p)));
        assert_eq!(Target::parse("./data"), directory("./data"));
        assert_eq!(Target::parse("sqlite:data"), directory("data"));
        assert_eq!(Target::parse("sqlite:///var/lib/x"), directory("/var/lib/x"));
        assert_eq!(Target::parse("postgresql://db/x"), Ok(Target::Postgres("postgresql://db/x".into())));
        assert_eq!(Target::parse("http://host:1/"), Ok(Target::Remote("http://host:1".into())));
        assert!(Target::parse("sqlite:").is_err() && Target::parse("postgres://").is_err());
        let said = Target::parse("postgers://db").unwrap_err();
        assert!(said.ends_with("did you mean postgres://?"), "{said}");
        for slip in
            ["postgresql:/u:s3cret@h/x", "host=::1 password=s3cret", "u:s3cret@h:5432/db", "http:u:s3cret"]
        {
            let said = Target::parse(slip).unwrap_err();
            assert!(said.contains("://") && !said.contains("s3cret"), "{said}");
        }
        assert_eq!(Target::parse("data@home"), directory("data@home"));
    }

    #[tokio::test]
    async fn an_interrupted_backup_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("data"), dir.path().join("copy.tidegate"));
        let store = open_directory(&from).await.unwrap();
        let bulk = Arc::new(Bulk::start(&Output::detect(true, ColorChoice::Never), "Backing up", 0));
        bulk.interrupt();
        assert_eq!(backup(from.clone(), to.clone(), bulk).await.unwrap(), Copied::Interrupted);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["data"], "no copy, whole or half");

        let bulk = Arc::new(Bulk::start(&Output::detect(true, ColorChoice::Never), "Backing up", 0));
        assert_eq!(backup(from, to.clone(), bulk).await.unwrap(), Copied::Whole);
        assert!(to.is_file());
        store.close().await.unwrap();
    }
}
