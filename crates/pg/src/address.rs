//! Where a database is, and connections to it.

use std::future::poll_fn;
use std::str::FromStr;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config};

use crate::tls::Tls;
use crate::{BadAddress, Schema};

/// What to do where the URL says nothing else.
#[derive(Debug, Clone, Copy)]
pub struct Habits<'a> {
    /// Name of this process in the server's list of sessions.
    pub name: &'a str,
    /// How long to wait for the socket. The whole of connecting may take twice as long.
    pub connect_timeout: Duration,
    /// How long what was sent may stay unanswered by the other machine.
    pub user_timeout: Duration,
}

/// Where the database is and how to get in.
#[derive(Debug, Clone)]
pub struct Address {
    config: Config,
    tls: Tls,
    limit: Duration,
    /// What the URL says of the schema.
    pub schema: Option<Schema>,
    /// What the URL says of a pooler in transaction mode.
    pub pooled: Option<bool>,
}

/// Told of notifications' payloads, in order.
pub type Ear = Box<dyn FnMut(&str) + Send>;

/// The task that does a connection's work; dropping it ends the connection.
#[derive(Debug)]
pub struct Work(JoinHandle<()>);

impl Work {
    /// Waits until the connection is lost.
    pub async fn ended(mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// There is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NotConnected {
    /// The server took the call and said nothing.
    #[error("the database does not answer")]
    Silent,
    /// The driver's reason.
    #[error(transparent)]
    Driver(#[from] tokio_postgres::Error),
}

impl Address {
    /// Reads a URL. `schema`, `pooled`, `sslrootcert` and `sslmode=verify-full` in it are ours; the rest is Postgres'.
    pub fn parse(url: &str, habits: Habits<'_>) -> Result<Self, BadAddress> {
        let (rest, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut root, mut mode, mut schema, mut pooled) = (vec![], None, None, None, None);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("schema", name) => schema = Some(Schema::new(name)?),
                ("pooled", yes) => pooled = Some(yes == "true"),
                ("sslrootcert", path) => root = Some(path),
                ("sslmode", name) => mode = Some(name),
                _ => kept.push(pair),
            }
        }
        let (mode, tls) = Tls::new(mode, root)?;
        let rest = if kept.is_empty() { rest.to_owned() } else { format!("{rest}?{}", kept.join("&")) };
        // The URL may hold a password: the error of the parser never repeats it.
        let mut config = Config::from_str(&rest)
            .map_err(|e| BadAddress::new(causes(&e), "write postgres://USER@HOST/DATABASE"))?;
        config.ssl_mode(mode);
        let limit = config.get_connect_timeout().copied().unwrap_or(habits.connect_timeout);
        config.connect_timeout(limit);
        if config.get_application_name().is_none() {
            config.application_name(habits.name);
        }
        config.keepalives(true).keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(habits.user_timeout);
        Ok(Self { config, tls, limit, schema, pooled })
    }

    /// Opens a connection. Its work is done by a task of the runtime that this is called in.
    pub async fn open(&self, mut ear: Option<Ear>) -> Result<(Client, Work), NotConnected> {
        // The driver's own limit is on the socket alone; a server that takes the call and says nothing is out of reach, too.
        let connecting = tokio::time::timeout(2 * self.limit, self.config.connect(self.tls.clone()));
        let (client, mut connection) = connecting.await.map_err(|_| NotConnected::Silent)??;
        let work = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(heard))) => {
                        if let Some(ear) = &mut ear {
                            ear(heard.payload());
                        }
                    }
                    Some(Ok(_)) => {}
                    // Whoever waits for an answer is told; nobody else needs to know.
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok((client, Work(work)))
    }
}

/// An error with what caused it: the driver's own text is too short.
fn causes(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", causes(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, BadAddress> {
        let second = Duration::from_secs(1);
        Address::parse(url, Habits { name: "test", connect_timeout: second, user_timeout: second })
    }

    #[test]
    fn what_is_ours_in_a_url_is_taken_out_of_it() {
        let address =
            parse("postgres://u@h/d?schema=own&connect_timeout=7&pooled=true&sslmode=disable").unwrap();
        assert_eq!((address.schema, address.pooled), (Some(Schema::new("own").unwrap()), Some(true)));
        assert_eq!(
            (address.limit, address.config.get_application_name()),
            (Duration::from_secs(7), Some("test"))
        );
        let address = parse("postgres://u@h/d").unwrap();
        assert_eq!((address.schema, address.pooled, address.limit), (None, None, Duration::from_secs(1)));
    }

    #[test]
    fn a_refusal_says_what_to_write_and_never_a_password() {
        let refused = |url| parse(url).unwrap_err().to_string();
        assert!(refused("postgres://u:secret@h/d?sslmode=maybe").contains("verify-full"));
        assert!(refused("postgres://u:secret@h/d?schema=pg_x").contains("letters"));
        let unreadable = refused("postgres://u:secret@h:port/d");
        assert!(unreadable.contains("USER@HOST") && !unreadable.contains("secret"), "{unreadable}");
    }
}
