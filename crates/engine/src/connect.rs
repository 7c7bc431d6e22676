//! From an address to a store.

use std::path::PathBuf;

use tidegate_core::codes;

use crate::{Error, Result, Tidegate};

/// What an address means.
#[derive(Debug, PartialEq, Eq)]
enum Address<'a> {
    /// The embedded store in a directory.
    Directory(PathBuf),
    /// A server.
    Server(&'a str),
    /// A database.
    Postgres(&'a str),
}

impl<'a> Address<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let text = text.trim();
        let refuse = |why: String| Err(Error::new(codes::INVALID_STORE_URL, why));
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => refuse("sqlite: names no directory".into()),
                path => Ok(Self::Directory(path.into())),
            };
        }
        match text.split_once("://") {
            None if text.is_empty() => refuse("the address of the store is empty".into()),
            None => Ok(Self::Directory(text.into())),
            Some(("http" | "https", _)) => Ok(Self::Server(text)),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text)),
            Some((scheme, _)) => {
                let shown: String = scheme.chars().take(40).collect();
                refuse(format!("{shown}:// is not a store that is known here"))
            }
        }
    }
}

impl Tidegate {
    /// Opens the store at an address, so that a program moves by changing one line:
    ///
    /// - a path or `sqlite:PATH`: the embedded store in that directory (feature `sqlite`), as [`Tidegate::open`] does;
    /// - `http://HOST:PORT` or `https://HOST`: a server (feature `remote`). Its API key is taken from the environment
    ///   variable `TIDEGATE_KEY`, a PEM file with an authority of your own from `TIDEGATE_CA`;
    /// - `postgres://…`: a Postgres database (feature `postgres`).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let address = format!("sqlite:{}", dir.path().display());
    /// let tide = tidegate::Tidegate::connect(&address).await?;
    /// tide.close().await?;
    ///
    /// let error = tidegate::Tidegate::connect("gopher://example.com").await.unwrap_err();
    /// assert_eq!(error.code.id, "TG2020");
    /// # Ok(()) }
    /// ```
    ///
    /// A server of this machine, and one elsewhere:
    ///
    /// ```no_run
    /// # async fn example() -> tidegate::Result<()> {
    /// let here = tidegate::Tidegate::connect("http://127.0.0.1:7433").await?;
    /// let there = tidegate::Tidegate::connect("https://jobs.example.com").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(address: impl AsRef<str>) -> Result<Self> {
        match Address::read(address.as_ref())? {
            Address::Directory(path) => open(path).await,
            Address::Server(url) => server(url).await,
            Address::Postgres(url) => postgres(url).await,
        }
    }
}

#[cfg(feature = "sqlite")]
async fn open(path: PathBuf) -> Result<Tidegate> {
    Tidegate::open(path).await
}

#[cfg(not(feature = "sqlite"))]
async fn open(_: PathBuf) -> Result<Tidegate> {
    Err(not_built_in("the embedded store", "sqlite"))
}

#[cfg(feature = "remote")]
async fn server(url: &str) -> Result<Tidegate> {
    let options = tidegate_client::RemoteOptions::from_env();
    let store = tidegate_client::RemoteStore::connect(url, options).await?;
    let gates = std::sync::Arc::new(store.gates());
    Ok(Tidegate::with_store(std::sync::Arc::new(store)).gates_of(gates))
}

#[cfg(not(feature = "remote"))]
async fn server(_: &str) -> Result<Tidegate> {
    Err(not_built_in("a server", "remote"))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Tidegate> {
    let (options, now) = (tidegate_store_postgres::PgOptions::new(), crate::clock::Clock::System.now());
    let store = tidegate_store_postgres::PgStore::connect(url, options, now).await?;
    Ok(Tidegate::with_store(std::sync::Arc::new(store)))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str) -> Result<Tidegate> {
    Err(not_built_in("Postgres", "postgres"))
}

#[cfg(not(all(feature = "sqlite", feature = "remote", feature = "postgres")))]
fn not_built_in(what: &str, feature: &str) -> Error {
    Error::new(codes::INVALID_STORE_URL, format!("{what} is not built in: the feature `{feature}` is off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_directory_a_server_or_a_database() {
        let directory = |p: &str| Address::Directory(p.into());
        for (text, meant) in [
            ("data", directory("data")),
            (" ./some/where ", directory("./some/where")),
            ("sqlite:data", directory("data")),
            ("sqlite:///var/lib/tidegate", directory("/var/lib/tidegate")),
            ("http://127.0.0.1:7433", Address::Server("http://127.0.0.1:7433")),
            ("https://jobs.example.com", Address::Server("https://jobs.example.com")),
            ("postgres://db/x", Address::Postgres("postgres://db/x")),
            ("postgresql://db/x", Address::Postgres("postgresql://db/x")),
        ] {
            assert_eq!(Address::read(text).unwrap(), meant, "{text}");
        }
        for bad in ["", "sqlite:", "redis://host"] {
            assert_eq!(Address::read(bad).unwrap_err().code, codes::INVALID_STORE_URL, "{bad}");
        }
    }
}
