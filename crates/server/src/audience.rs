//! Who listens to which events. Streams with the same filter are one group; an event finds its groups by what they ask
//! for, so its cost does not grow with the number of streams that it is not for.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId};
use tidegate_store::feed::{EventId, JobEvent, SharedEvent};
use tidegate_wire::events;
use tokio::sync::broadcast;

/// Pieces that a stream may be behind before it reads from the store's own buffer.
const PIECES: usize = 32;
/// Events that a stream is told at once, however many streams there are; and all that it is told with a gap: who missed some
/// must look at the store anyway.
const LEAST_SHARE: usize = 64;

/// Which events a stream is about. Empty fields do not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    pub(crate) job: Option<JobId>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) kind: Option<KindName>,
    pub(crate) queue: Option<QueueName>,
}

impl Filter {
    pub(crate) fn matches(&self, event: &JobEvent) -> bool {
        self.job.is_none_or(|id| id == event.id)
            && self.tenant.as_ref().is_none_or(|t| event.tenant.as_ref() == Some(t))
            && self.kind.as_ref().is_none_or(|k| *k == event.kind)
            && self.queue.as_ref().is_none_or(|q| *q == event.queue)
    }

    /// The most telling thing that it asks for.
    fn key(&self) -> Key {
        match self {
            Self { job: Some(job), .. } => Key::Job(*job),
            Self { tenant: Some(tenant), .. } => Key::Tenant(tenant.clone()),
            Self { kind: Some(kind), .. } => Key::Kind(kind.clone()),
            Self { queue: Some(queue), .. } => Key::Queue(queue.clone()),
            Self { .. } => Key::All,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Job(JobId),
    Tenant(TenantId),
    Kind(KindName),
    Queue(QueueName),
    All,
}

/// Classes of keys.
const CLASSES: usize = 5;

impl Key {
    fn class(&self) -> usize {
        match self {
            Self::Job(_) => 0,
            Self::Tenant(_) => 1,
            Self::Kind(_) => 2,
            Self::Queue(_) => 3,
            Self::All => 4,
        }
    }

    /// What an event has of a class.
    fn of(event: &JobEvent, class: usize) -> Option<Self> {
        match class {
            0 => Some(Self::Job(event.id)),
            1 => event.tenant.clone().map(Self::Tenant),
            2 => Some(Self::Kind(event.kind.clone())),
            3 => Some(Self::Queue(event.queue.clone())),
            _ => Some(Self::All),
        }
    }
}

/// Events as they are sent.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Some events before these are missing.
    pub(crate) gap: bool,
    /// The events with where each ends in the text.
    events: Vec<(EventId, usize)>,
    text: Bytes,
    /// The newest event that was looked at for this piece.
    pub(crate) newest: Option<EventId>,
}

impl Piece {
    /// Writes events.
    pub(crate) fn write<'a>(
        events: impl ExactSizeIterator<Item = &'a (EventId, SharedEvent)>,
        newest: Option<EventId>,
        gap: bool,
    ) -> Self {
        let mut text = BytesMut::with_capacity(events.len() * 192);
        let written = events.map(|(id, event)| {
            let wire = events::JobEvent::from(&**event);
            text.put_slice(format!("id: {id}\nevent: {}\ndata: ", wire.event.as_str()).as_bytes());
            // Names, numbers and times: nothing that could not be written.
            let _ = serde_json::to_writer((&mut text).writer(), &wire);
            text.put_slice(b"\n\n");
            (*id, text.len())
        });
        let events: Vec<(EventId, usize)> = written.collect();
        Self { gap, events, text: text.freeze(), newest }
    }

    /// The text of the events after this one, and how many they are.
    pub(crate) fn after(&self, last: Option<EventId>) -> (Bytes, usize) {
        let seen = |id: EventId| last.is_some_and(|last| id.origin == last.origin && id <= last);
        let first = self.events.iter().position(|(id, _)| !seen(*id)).unwrap_or(self.events.len());
        let start = if first == 0 { 0 } else { self.events[first - 1].1 };
        (self.text.slice(start..), self.events.len() - first)
    }
}

/// How much was told.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) streams: usize,
    /// Events, counted once for each stream that was told.
    pub(crate) events: usize,
}

/// Everybody who listens.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    groups: HashMap<Key, Vec<Group>>,
    /// Keys of each class among the groups: a class that nobody asks for is not looked up for each event.
    asked: [usize; CLASSES],
    streams: usize,
}

#[derive(Debug)]
struct Group {
    filter: Filter,
    streams: usize,
    live: broadcast::Sender<Arc<Piece>>,
    /// Places of its events among those that are being told.
    found: Vec<u32>,
}

impl Audience {
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    pub(crate) fn join(&mut self, filter: &Filter) -> broadcast::Receiver<Arc<Piece>> {
        self.streams += 1;
        let key = filter.key();
        let class = key.class();
        let groups = self.groups.entry(key).or_insert_with(|| {
            self.asked[class] += 1;
            vec![]
        });
        if let Some(group) = groups.iter_mut().find(|g| g.filter == *filter) {
            group.streams += 1;
            return group.live.subscribe();
        }
        let (live, receiver) = broadcast::channel(PIECES);
        groups.push(Group { filter: filter.clone(), streams: 1, live, found: vec![] });
        receiver
    }

    pub(crate) fn leave(&mut self, filter: &Filter) {
        let key = filter.key();
        let Some(groups) = self.groups.get_mut(&key) else { return };
        self.streams -= 1;
        if let Some(group) = groups.iter_mut().find(|g| g.filter == *filter) {
            group.streams -= 1;
        }
        groups.retain(|g| g.streams > 0);
        if groups.is_empty() {
            self.groups.remove(&key);
            self.asked[key.class()] -= 1;
        }
    }

    /// Tells everybody of the events that are for them; of a gap and the newest if they are more than `share`.
    pub(crate) fn tell(&mut self, events: &[(EventId, SharedEvent)], gap: bool, share: usize) -> Told {
        for (place, (_, event)) in events.iter().enumerate() {
            self.find(place as u32, event);
        }
        let (newest, share) = (events.last().map(|(id, _)| *id), share.max(LEAST_SHARE));
        let mut told = Told::default();
        for group in self.groups.values_mut().flatten() {
            let found = std::mem::take(&mut group.found);
            let skipped = if found.len() > share { found.len() - LEAST_SHARE } else { 0 };
            let gap = gap || skipped > 0;
            if found.is_empty() && !gap {
                continue;
            }
            let these = found[skipped..].iter().map(|place| &events[*place as usize]);
            told.streams += group.streams;
            told.events += group.streams * these.len();
            // Nobody listening any more is fine.
            let _ = group.live.send(Arc::new(Piece::write(these, newest, gap)));
        }
        told
    }

    fn find(&mut self, place: u32, event: &JobEvent) {
        let classes = (0..CLASSES).filter(|class| self.asked[*class] > 0);
        let keys: [Option<Key>; CLASSES] = {
            let mut keys = [const { None }; CLASSES];
            classes.for_each(|class| keys[class] = Key::of(event, class));
            keys
        };
        for key in keys.into_iter().flatten() {
            for group in self.groups.get_mut(&key).into_iter().flatten() {
                if group.filter.matches(event) {
                    group.found.push(place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u32, tenant: &str) -> (EventId, SharedEvent) {
        let event = JobEvent { tenant: Some(tenant.parse().unwrap()), ..JobEvent::sample(n) };
        (EventId { origin: 1, commit: 1, place: n }, event.into())
    }

    fn tenant(name: &str) -> Filter {
        Filter { tenant: Some(name.parse().unwrap()), ..Filter::default() }
    }

    #[test]
    fn each_stream_is_told_what_is_for_it_and_no_other_is_woken() {
        let mut audience = Audience::default();
        let mut all = audience.join(&Filter::default());
        let mut acme = audience.join(&tenant("acme"));
        let mut other = audience.join(&tenant("other"));
        let told = audience.tell(&[event(1, "acme"), event(2, "nobody")], false, 1_000);
        assert_eq!(told, Told { streams: 2, events: 3 });
        assert_eq!(all.try_recv().unwrap().after(None).1, 2);
        let piece = acme.try_recv().unwrap();
        assert_eq!((piece.after(None).1, piece.newest), (1, Some(event(2, "x").0)));
        assert!(other.try_recv().is_err());
        audience.leave(&tenant("acme"));
        assert_eq!((audience.streams(), audience.groups.len()), (2, 2));
        audience.leave(&tenant("other"));
        assert_eq!(
            audience.tell(&[event(3, "acme")], false, 1_000).streams,
            1,
            "who asks for all is still told"
        );
        audience.leave(&Filter::default());
        assert_eq!((audience.asked, audience.groups.len()), ([0; CLASSES], 0));
    }

    #[test]
    fn more_than_their_share_is_a_gap_and_the_newest() {
        let mut audience = Audience::default();
        let mut all = audience.join(&Filter::default());
        let events: Vec<_> = (0..200).map(|n| event(n, "acme")).collect();
        audience.tell(&events, false, 100);
        let piece = all.try_recv().unwrap();
        assert!(piece.gap);
        let (text, count) = piece.after(None);
        assert_eq!(count, LEAST_SHARE);
        assert!(text.starts_with(b"id: 1-1-136\n"));
        let (rest, count) = piece.after(Some(event(198, "x").0));
        assert_eq!(count, 1);
        assert!(rest.starts_with(b"id: 1-1-199\n"));
    }
}
