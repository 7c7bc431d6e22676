//! A document as it comes in, from a file or over HTTP: applied whole, or refused and kept in the history as refused. The one way
//! in for both, so that an invalid document is never active and never forgotten.

use tidegate_core::codes;
use tidegate_core::registry::{Format, Outcome, Problem, Reading, Standing};
use tidegate_core::time::Timestamp;

use crate::params::{Applied, Apply, RefusedDocument, Wanted};
use crate::{Result, Store};

/// How many entries of the history are looked at for the same refusal: several processes may watch one file.
const RECENT: usize = 8;

/// A document that somebody wants to hold.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// Its text.
    pub text: &'a str,
    /// How it is written.
    pub format: Format,
    /// Who sends it.
    pub by: &'a str,
    /// Where it came from.
    pub source: &'a str,
    /// Only say what would change.
    pub dry_run: bool,
    /// Now.
    pub now: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Offered {
    /// It holds.
    Applied(Applied),
    /// It changed nothing; this is wrong with it.
    Refused(Vec<Problem>),
}

/// Applies a document, or keeps in the history that it was refused.
pub async fn offer(store: &dyn Store, offer: Offer<'_>) -> Result<Offered> {
    let reading = Reading::of(offer.text, offer.format);
    let problems = if reading.is_sound() {
        match apply(store, reading, offer).await? {
            Ok(applied) => return Ok(Offered::Applied(applied)),
            Err(problems) => problems,
        }
    } else {
        mistakes(store, &reading, offer.source).await?
    };
    if !offer.dry_run {
        let hash = tidegate_core::registry::hash_of(offer.text);
        let known = store.versions(RECENT).await?;
        // Only what holds since then makes the same mistake news again.
        let since = known.iter().take_while(|v| v.outcome == Outcome::Refused);
        if !since.into_iter().any(|v| v.hash == hash) {
            let (by, source) = (offer.by.to_owned(), offer.source.to_owned());
            store.refuse(RefusedDocument { by, source, hash, problems: problems.clone() }, offer.now).await?;
        }
    }
    Ok(Offered::Refused(problems))
}

async fn apply(
    store: &dyn Store,
    reading: Reading,
    offer: Offer<'_>,
) -> Result<std::result::Result<Applied, Vec<Problem>>> {
    let document = match reading.into_document() {
        Ok(document) => document,
        Err(problems) => return Ok(Err(problems)),
    };
    let apply = Apply {
        wanted: Wanted::Document(Box::new(document)),
        by: offer.by.to_owned(),
        source: offer.source.to_owned(),
        dry_run: offer.dry_run,
        now: offer.now,
    };
    match store.apply(apply).await {
        Ok(applied) => Ok(Ok(applied)),
        Err(error) if error.code == codes::INVALID_REGISTRY => {
            let line = |line: &str| Problem { path: String::new(), what: line.to_owned() };
            Ok(Err(error.detail.lines().map(line).collect()))
        }
        Err(error) => Err(error),
    }
}

/// Everything that is wrong with a document that could not be read as a whole: with what it says, and with what it names, which this
/// store may have.
pub async fn mistakes(store: &dyn Store, reading: &Reading, source: &str) -> Result<Vec<Problem>> {
    let (registry, schedules) = (store.registry().await?, store.schedules().await?);
    let in_force = schedules.iter().filter(|s| s.retired.is_none());
    let standing: Vec<Standing<'_>> = in_force
        .map(|s| Standing { name: &s.name, after: &s.settings.after, document: s.document.as_deref() })
        .collect();
    Ok(reading.beside(&registry, source, &standing))
}
