//! The ear of a process: a connection that listens for what others commit and for what users put into the inbox.
//!
//! What is heard is a hint. Whoever misses one finds out with the next transaction, or by looking every other second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tidegate_pg::Address;
use tokio::sync::Notify;

use crate::error::OrStore;
use crate::options::PgOptions;

/// Pause before a lost connection is made again.
const PAUSE: Duration = Duration::from_millis(500);

/// What was heard since the writer last looked.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    version: AtomicI64,
    any: AtomicBool,
    inbox: AtomicBool,
    listens: AtomicBool,
    /// How far the server's clock is ahead of this process's, in milliseconds.
    clock_ahead: AtomicI64,
    wake: Notify,
    /// Told of commits alone, for somebody who waits for the lock.
    commits: Notify,
}

/// What was heard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    /// The newest commit.
    pub(crate) version: i64,
    any: bool,
    inbox: bool,
}

impl News {
    /// Whether it was about commits alone, so that the inbox need not be looked at.
    pub(crate) fn only_commits(self) -> bool {
        self.any && !self.inbox
    }
}

impl Heard {
    /// How far the server's clock is ahead of this process's, in milliseconds.
    pub(crate) fn clock_ahead(&self) -> i64 {
        self.clock_ahead.load(Ordering::Relaxed)
    }

    pub(crate) fn set_clock_ahead(&self, ms: i64) {
        self.clock_ahead.store(ms, Ordering::Relaxed);
    }

    /// The newest commit that was heard of.
    pub(crate) fn version(&self) -> i64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until a commit after this one was heard of.
    pub(crate) async fn beyond(&self, version: i64) {
        while self.version() <= version {
            self.commits.notified().await;
        }
    }

    /// Whether notifications come.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// Whether users put something into the inbox.
    pub(crate) fn has_inbox(&self) -> bool {
        self.inbox.load(Ordering::Relaxed)
    }

    /// Waits until something was heard.
    pub(crate) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// What was heard; nothing until more is.
    pub(crate) fn take(&self) -> News {
        News {
            any: self.any.swap(false, Ordering::AcqRel),
            inbox: self.inbox.swap(false, Ordering::AcqRel),
            version: self.version.load(Ordering::Acquire),
        }
    }

    /// `c` and a version: a commit that may have woken somebody. `i`: something is in the inbox.
    pub(crate) fn hear(&self, text: &str) {
        if let Some(version) = text.strip_prefix('c').and_then(|v| v.parse().ok()) {
            self.version.fetch_max(version, Ordering::AcqRel);
            self.commits.notify_one();
        } else {
            self.inbox.store(true, Ordering::Release);
        }
        self.any.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Nobody knows what is in the inbox: the next look is at it, too. Wakes nobody, who is about to look anyway.
    pub(crate) fn doubt_inbox(&self) {
        self.inbox.store(true, Ordering::Release);
    }

    /// There is more in the inbox than was taken at once.
    pub(crate) fn more_in_inbox(&self) {
        self.inbox.store(true, Ordering::Release);
        self.any.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn set_listening(&self, yes: bool) {
        if self.listens.swap(yes, Ordering::AcqRel) != yes && yes {
            // Something may have been said while nobody listened.
            self.inbox.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }
}

/// Listens for ever; dropped with its runtime.
pub(crate) async fn listen(address: Address, options: PgOptions, heard: Arc<Heard>) {
    loop {
        let ear = heard.clone();
        let opened = address.open(Some(Box::new(move |said: &str| ear.hear(said)))).await;
        if let Ok((client, work)) = opened {
            let text = format!("LISTEN {}", options.schema.quoted());
            match client.batch_execute(&text).await.or_store() {
                Ok(()) => {
                    heard.set_listening(true);
                    // Ends with the connection.
                    work.ended().await;
                    heard.set_listening(false);
                }
                Err(error) => {
                    tracing::debug!("The database does not let us listen; it is polled instead: {error}");
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_heard_is_kept_until_it_is_taken() {
        let heard = Heard::default();
        heard.hear("c7");
        heard.hear("c5");
        heard.wait().await;
        let news = heard.take();
        assert!(news.version == 7 && news.only_commits());
        heard.hear("i");
        assert!(heard.has_inbox() && !heard.take().only_commits());
        assert!(!heard.take().only_commits(), "nothing heard: look at everything");
        heard.doubt_inbox();
        heard.hear("c8");
        assert!(!heard.take().only_commits(), "a commit that is heard of at the start hides no inbox");
    }

    #[tokio::test]
    async fn a_doubt_about_the_inbox_leaves_no_wake_up_behind() {
        let heard = Heard::default();
        heard.doubt_inbox();
        heard.take();
        let woken = tokio::time::timeout(Duration::from_millis(1), heard.wait()).await;
        assert!(woken.is_err(), "a look after the first callers were served would be one too many");
    }
}
