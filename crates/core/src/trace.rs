//! Trace context (W3C Trace Context, `traceparent`), and the rules by which spans get their ids and are sampled.
//!
//! Ids are derived, not drawn: a job without a context has the trace that its own id names, and a span's id comes from the job, its parent
//! and what it is about. So every process that touches a job comes to the same trace without a byte being stored, and an enqueue
//! that is sent again makes the same span again.

use std::fmt;
use std::str::FromStr;

use crate::ids::{JobId, LeaseId};
use crate::seed::Seed;

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Flag: whoever made the context recorded it.
const SAMPLED: u8 = 1;
/// Bits of a trace id that are random enough to sample by (W3C Trace Context, level 2): the last 56.
const RANDOM_BITS: u32 = 56;

/// Where in which trace something happens: the value of a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

/// Text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent is `00-`, 32 hexadecimal digits, `-`, 16 hexadecimal digits, `-` and two more, all lower case and neither id zero, as in \
     00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct InvalidTraceParent;

impl TraceParent {
    /// The trace, 16 bytes.
    pub fn trace(self) -> u128 {
        self.trace
    }

    /// The span, 8 bytes.
    pub fn span(self) -> u64 {
        self.span
    }

    /// Whether whoever made it recorded it.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let bytes = text.as_bytes();
        let head = bytes.get(..LENGTH).ok_or(InvalidTraceParent)?;
        let version = hex(&head[..2])?;
        let dashes = [2, 35, 52].iter().all(|i| head[*i] == b'-');
        // A later version may have more behind a dash; of 00 nothing else is known.
        let end = match version {
            0 => bytes.len() == LENGTH,
            0xff => false,
            _ => bytes.get(LENGTH).is_none_or(|b| *b == b'-'),
        };
        let (trace, span) = (hex(&head[3..35])?, hex(&head[36..52])? as u64);
        let flags = hex(&head[53..55])? as u8;
        if !dashes || !end || trace == 0 || span == 0 {
            return Err(InvalidTraceParent);
        }
        // What flags of a later version mean is not known here.
        Ok(Self { trace, span, flags: if version == 0 { flags } else { flags & SAMPLED } })
    }
}

fn hex(digits: &[u8]) -> Result<u128, InvalidTraceParent> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(InvalidTraceParent),
        };
        Ok(number << 4 | u128::from(value))
    })
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Storing the job.
    Enqueue,
    /// One attempt, under this lease.
    Run(LeaseId),
}

/// A span that is to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its own context, for whoever comes after it.
    pub own: TraceParent,
    /// The span that it is a child of.
    pub parent: Option<u64>,
}

/// How many traces are recorded. Whoever began a trace has decided for all of it; only jobs without a context are decided on here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Random parts of trace ids from here on are recorded.
    from: u64,
}

impl Sampling {
    /// This part of all traces; what is not between 0 and 1 is taken to be the nearer of the two.
    pub fn ratio(ratio: f64) -> Self {
        let all = (1u64 << RANDOM_BITS) as f64;
        let kept = if ratio.is_nan() { 0.0 } else { ratio.clamp(0.0, 1.0) };
        Self { from: ((1.0 - kept) * all) as u64 }
    }

    fn keeps(self, trace: u128) -> bool {
        let random = trace as u64 & ((1 << RANDOM_BITS) - 1);
        random >= self.from
    }

    /// Where a span of a job belongs; `None` if it is not recorded. `context` is what the job carries.
    pub fn place(self, job: JobId, context: Option<TraceParent>, about: About) -> Option<Place> {
        let trace = context.map_or(job.uuid().as_u128(), TraceParent::trace);
        if !context.map_or_else(|| trace != 0 && self.keeps(trace), TraceParent::is_sampled) {
            return None;
        }
        let parent = context.map(TraceParent::span);
        let own = TraceParent { trace, span: span_id(job, parent, about), flags: SAMPLED };
        Some(Place { own, parent })
    }
}

fn span_id(job: JobId, parent: Option<u64>, about: About) -> u64 {
    let id = job.uuid().as_u128();
    let what = match about {
        About::Enqueue => 0,
        About::Run(lease) => 1 + lease.0 as u64,
    };
    let mixed = [id as u64, (id >> 64) as u64, parent.unwrap_or_default(), what]
        .into_iter()
        .fold(0, |state: u64, part| Seed::new(state ^ part).next_u64());
    mixed.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn job(n: u128) -> JobId {
        JobId::from_parts(1_800_000_000_000, n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }

    #[test]
    fn a_context_is_read_and_written_as_the_standard_says() {
        let read: TraceParent = GIVEN.parse().unwrap();
        assert_eq!(read.to_string(), GIVEN);
        assert_eq!(
            (read.trace(), read.span()),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(read.is_sampled());
        let not: TraceParent = GIVEN.replace("-01", "-02").parse().unwrap();
        assert!(!not.is_sampled() && not.to_string().ends_with("-02"), "flags are handed on");
    }

    #[test]
    fn a_later_version_may_say_more_and_is_handed_on_as_this_one() {
        for text in [GIVEN.replacen("00", "cc", 1), format!("{}-what-ever", GIVEN.replacen("00", "01", 1))] {
            assert_eq!(text.parse::<TraceParent>().unwrap().to_string(), GIVEN, "{text}");
        }
        let flags = GIVEN.replacen("00", "01", 1).replace("-01", "-ff");
        assert_eq!(flags.parse::<TraceParent>().unwrap().to_string(), GIVEN, "what they mean is not known");
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let long = format!("{GIVEN}-x");
        let beyond = format!("{}x", GIVEN.replacen("00", "01", 1));
        for bad in [
            "",
            "00",
            &GIVEN[..54],
            &GIVEN.to_uppercase(),
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            &GIVEN.replace("00f067aa0ba902b7", "0000000000000000"),
            &GIVEN.replace('-', "_"),
            &GIVEN.replace("4bf9", "4bg9"),
            &GIVEN.replace("-01", "-0x"),
            &GIVEN.replace("4bf9", "4bé"),
            &long,
            &beyond,
            &format!(" {GIVEN}"),
        ] {
            assert_eq!(bad.parse::<TraceParent>(), Err(InvalidTraceParent), "{bad:?}");
        }
    }

    #[test]
    fn runs_of_a_job_share_its_trace_and_have_spans_of_their_own() {
        let (all, id) = (Sampling::ratio(1.0), job(1));
        let enqueued = all.place(id, None, About::Enqueue).unwrap();
        assert_eq!((enqueued.own.trace(), enqueued.parent), (id.uuid().as_u128(), None));
        let run = |lease| all.place(id, Some(enqueued.own), About::Run(LeaseId(lease))).unwrap();
        let (first, second) = (run(1), run(2));
        assert_eq!((first.own.trace(), first.parent), (enqueued.own.trace(), Some(enqueued.own.span())));
        assert_eq!(second.parent, first.parent);
        assert_ne!(first.own.span(), second.own.span());
        assert_eq!(run(1), first, "derived, not drawn");
        // A server that passes on what a client enqueued has a span of its own below the client's.
        let passed_on = all.place(id, Some(enqueued.own), About::Enqueue).unwrap();
        assert_ne!(passed_on.own.span(), enqueued.own.span());
    }

    #[test]
    fn whoever_began_a_trace_decides_and_others_are_sampled_by_their_id() {
        let sampled: TraceParent = GIVEN.parse().unwrap();
        let unsampled: TraceParent = GIVEN.replace("-01", "-00").parse().unwrap();
        let (none, all) = (Sampling::ratio(0.0), Sampling::ratio(1.0));
        assert!(none.place(job(1), Some(sampled), About::Enqueue).is_some());
        assert!(all.place(job(1), Some(unsampled), About::Enqueue).is_none());
        let kept = |ratio: f64| {
            let sampling = Sampling::ratio(ratio);
            (0..10_000).filter(|n| sampling.place(job(*n), None, About::Enqueue).is_some()).count()
        };
        assert_eq!((kept(0.0), kept(1.0), kept(-1.0), kept(f64::NAN)), (0, 10_000, 0, 0));
        let (some, more) = (kept(0.1), kept(0.5));
        assert!((800..1_200).contains(&some) && (4_700..5_300).contains(&more), "{some} {more}");
        // Who is kept by a small part is kept by a larger one: processes with other settings see whole traces.
        let (small, large) = (Sampling::ratio(0.1), Sampling::ratio(0.5));
        assert!(
            (0..10_000)
                .filter(|n| small.keeps(job(*n).uuid().as_u128()))
                .all(|n| large.keeps(job(n).uuid().as_u128()))
        );
    }
}
