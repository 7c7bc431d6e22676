//! The registry's file: applied at start, when it changes, and on SIGHUP. A file with a mistake changes nothing; the old
//! registry stays, and history says what was refused and why.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::registry::{Left, hash_of};
use tidegate_store::Store;
use tidegate_store::offer::{Offer, Offered, offer};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::registry::{format_of, known_as, text_of, who};
use crate::error::Result;
use crate::output::clean;
use crate::parse;

/// How often the file is looked at. A change counts when two looks in a row see the same: an editor may be half done.
const LOOK: Duration = Duration::from_millis(500);

/// Schedules of other documents that are named.
const FEW: usize = 5;

/// What tells one state of a file from another without reading it: inode, size, and when it was written.
type Mark = (u64, u64, i64, i64);

/// Why the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    Start,
    Changed,
    Asked,
}

/// The file and what is known of it.
pub(super) struct Reload {
    file: PathBuf,
    /// What the file is known as: what it was at the start, wherever links lead to by now.
    source: String,
    store: Arc<dyn Store>,
    hangup: Signal,
    /// The file as it was when it was read last.
    read: Option<Mark>,
    /// The file as the last look saw it.
    seen: Option<Mark>,
    /// Hash of the text that was offered last.
    offered: Option<String>,
}

impl Reload {
    /// Watches a file for a store. From here on SIGHUP no longer ends the process.
    pub(super) fn new(file: PathBuf, store: Arc<dyn Store>) -> Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        let source = known_as(&file);
        Ok(Self { file, source, store, hangup, read: None, seen: None, offered: None })
    }

    /// Reads the file and offers it to the store.
    pub(super) async fn once(&mut self, because: Because) {
        let shown = self.file.display().to_string();
        self.read = self.mark();
        self.seen = self.read;
        let text = match text_of(&self.file) {
            Ok(text) => text,
            Err(failure) => {
                tracing::error!(file = shown, "The registry's file could not be read: {}", failure.message());
                return;
            }
        };
        let hash = hash_of(&text);
        // Touched, but not changed. Who asks gets it done again: somebody may have changed the registry by other means.
        if because == Because::Changed && self.offered.as_ref() == Some(&hash) {
            return;
        }
        let by = who();
        let format = format_of(&self.file);
        let source = self.source.as_str();
        let document = Offer { text: &text, format, by: &by, source, dry_run: false, now: parse::now() };
        match offer(&*self.store, document).await {
            Ok(Offered::Applied(applied)) => {
                self.offered = Some(hash);
                let (changes, version) = (applied.changes.len(), applied.version);
                let left_alone = applied.left_alone;
                tracing::info!(
                    file = shown,
                    changes,
                    version,
                    left_alone,
                    "The registry's file was applied."
                );
                if let Some(schedules) = of_others(&applied.left) {
                    tracing::warn!(
                        file = shown,
                        "Schedules of other documents were left alone and run on: {schedules}."
                    );
                }
            }
            Ok(Offered::Refused(problems)) => {
                self.offered = Some(hash);
                let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
                tracing::error!(
                    file = shown,
                    mistakes = problems.len(),
                    "The registry's file was refused, the old registry stays: {}",
                    said.join("; ")
                );
            }
            // The store does not answer: the next look tries again.
            Err(error) => {
                self.read = None;
                tracing::warn!(file = shown, code = %error.code, "The registry's file could not be applied: {error}");
            }
        }
    }

    fn mark(&self) -> Option<Mark> {
        let about = std::fs::metadata(&self.file).ok()?;
        Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
    }

    /// Whether the file is other than it was read, and has stood still for a look.
    fn has_changed(&mut self) -> bool {
        let now = self.mark();
        let stands = now == self.seen;
        self.seen = now;
        // A file that is gone for a moment is being replaced.
        stands && now.is_some() && now != self.read
    }
}

/// Schedules left alone that belong to other documents, in words.
fn of_others(left: &[Left]) -> Option<String> {
    let schedules = left.iter().filter(|left| left.what == "schedule");
    let mut found = schedules.filter_map(|left| {
        let document = left.document.as_deref()?;
        Some(format!("{} (of {})", clean(&left.name), clean(document)))
    });
    let mut said: Vec<String> = found.by_ref().take(FEW).collect();
    let more = found.count();
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    (!said.is_empty()).then(|| said.join(", "))
}

/// Watches for ever; without a file it does nothing for ever.
pub(super) async fn run(reload: Option<Reload>) {
    let Some(mut reload) = reload else { return std::future::pending().await };
    loop {
        let because = tokio::select! {
            _ = reload.hangup.recv() => Because::Asked,
            () = tokio::time::sleep(LOOK) => Because::Changed,
        };
        if because == Because::Asked || reload.has_changed() {
            reload.once(because).await;
        }
    }
}
