//! One sentence for every state and every reason a job waits: the cause, then the number, then what happens next.

use serde::{Deserialize, Serialize};

use crate::failure::ErrorEntry;
use crate::ids::{GroupKey, JobId, QueueName, WorkerId};
use crate::job::{DeadLetter, Park, Priority};
use crate::lanes::GATE_PARK;
use crate::registry::Limiter;
use crate::time::{Millis, Timestamp};

/// What keeps a job from running now, or what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// Waits for other jobs.
    Blocked {
        /// How many it still waits for.
        open: u32,
        /// How many there were.
        total: u32,
        /// Some of those it still waits for.
        jobs: Vec<JobId>,
        /// Whether one of them is dead and must be recovered first.
        dead: Option<JobId>,
    },
    /// Enqueued for later.
    Delayed,
    /// An attempt failed; the next one is planned.
    Retry {
        /// Number of the next attempt.
        next_attempt: u32,
        /// The failure.
        error: Option<ErrorEntry>,
    },
    /// The handler put it off.
    Snoozed {
        /// Why.
        reason: String,
        /// How often so far.
        times: u32,
    },
    /// One or more parks cover it. The one that ends last comes first.
    Parked {
        /// The parks.
        parks: Vec<Park>,
    },
    /// Its group runs as many as it may.
    GroupFull {
        /// The group.
        group: GroupKey,
        /// Running now.
        running: u32,
        /// Allowed.
        limit: u32,
    },
    /// Its kind runs as many as it may.
    KindFull {
        /// Running now.
        running: u32,
        /// Allowed.
        limit: u32,
    },
    /// Its queue runs as many as it may.
    QueueFull {
        /// Allowed.
        limit: u32,
    },
    /// Its queue started as many in the window as it may.
    Limited {
        /// The limiter.
        limiter: Limiter,
        /// When the next start is allowed.
        free_at: Timestamp,
    },
    /// Its process died while it ran; it waits to run alone.
    Suspect {
        /// Lone stalls so far.
        lone_stalls: u32,
    },
    /// Others come first.
    Behind {
        /// Jobs of higher priority in the queue.
        higher: u64,
        /// Older jobs of its own lane.
        older: u64,
    },
    /// It is next.
    Next,
    /// It runs.
    Running {
        /// Who runs it.
        worker: WorkerId,
        /// Since when.
        since: Timestamp,
        /// Until when the lease holds.
        lease_until: Timestamp,
        /// Whether a cancel was asked for.
        cancel_requested: bool,
    },
    /// Done.
    Completed {
        /// When.
        at: Timestamp,
    },
    /// Called off.
    Cancelled {
        /// When.
        at: Timestamp,
        /// By whom and why, if known.
        note: Option<String>,
    },
    /// Given up.
    Dead {
        /// When.
        at: Timestamp,
        /// The letter.
        letter: DeadLetter,
    },
}

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// Its queue.
    pub queue: QueueName,
    /// Its priority.
    pub priority: Priority,
    /// When it is expected to start, where that can be computed.
    pub expected_start: Option<Timestamp>,
    /// Counted attempts, the running one included.
    pub attempt: u32,
    /// Attempts it has in all.
    pub max_attempts: u32,
    /// The dead letter whose place it took, if it was recovered.
    pub recovered_from: Option<JobId>,
    /// It could run, and no worker is known to serve its queue: none said so that is alive, and nothing of it ran within the last minute.
    pub unserved: bool,
}

impl Why {
    /// The explanation for people, seen at `now`.
    pub fn sentence(&self, now: Timestamp) -> String {
        let origin = self.recovered_from;
        let origin =
            origin.map_or(String::new(), |dead| format!(" It took the place of dead letter {dead}."));
        let unserved = if self.unserved { self.nobody() } else { String::new() };
        self.standing(now) + &unserved + &origin
    }

    /// That nobody serves its queue, and what to do.
    fn nobody(&self) -> String {
        let queue = &self.queue;
        format!(
            " No worker is known to serve queue {queue}: start one with `tidegate work --queue {queue} --exec COMMAND`, or a program that \
             handles its kind."
        )
    }

    /// Where it stands, whatever it came from.
    fn standing(&self, now: Timestamp) -> String {
        let queue = &self.queue;
        let next =
            self.expected_start.map_or(String::new(), |t| format!(" Expected start {}.", when(t, now)));
        match &self.cause {
            Cause::Blocked { open, total, jobs, dead } => {
                let listed: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                let more = if (*open as usize) > jobs.len() { ", …" } else { "" };
                let dead = dead.map_or(String::new(), |id| format!(" {id} is dead: recover or cancel it."));
                format!(
                    "Waits for {} of {} to complete: {}{more}.{dead}{next}",
                    grouped((*open).into()),
                    self::jobs((*total).into()),
                    listed.join(", ")
                )
            }
            Cause::Delayed => {
                format!("Delayed; starts {}.", self.expected_start.map_or("later".into(), |t| when(t, now)))
            }
            Cause::Retry { next_attempt, error } => {
                let because = error.as_ref().map_or(String::new(), |e| {
                    format!(" because attempt {} failed with {}: {}", e.attempt, e.code, one_line(&e.message))
                });
                let at = match self.expected_start {
                    Some(t) if t.since(now) < -1_000 => {
                        format!("due {} and not picked up by a worker yet", when(t, now))
                    }
                    Some(t) => when(t, now),
                    None => "soon".into(),
                };
                format!("Waits for attempt {next_attempt} of {}, {at},{because}.", self.max_attempts)
            }
            // For a gate: such waits are not counted.
            Cause::Snoozed { reason, times: 0 } => {
                let at = self.expected_start.map_or("later".into(), |t| when(t, now));
                let (attempt, most) = (self.attempt + 1, self.max_attempts);
                format!(
                    "Waits for {}. Next try {at}. Attempt {attempt} of {most}, nothing spent.",
                    one_line(reason)
                )
            }
            Cause::Snoozed { reason, times } => {
                let at = self.expected_start.map_or("later".into(), |t| when(t, now));
                format!("Snoozed: {}. Next try {at} (snooze {times}, no attempt spent).", one_line(reason))
            }
            Cause::Parked { parks } => {
                let one = |p: &Park| {
                    let until = p.until.map_or("until it is resumed".into(), |t| until(t, now));
                    let paused = matches!(p.scope, crate::job::ParkScope::Queue(_)) && p.until.is_none();
                    let verb = if paused { "paused" } else { "parked" };
                    let whose = if p.by.starts_with(GATE_PARK) { " (said to a job before it)" } else { "" };
                    format!(
                        "{} is {verb} by {} {until}: {}{whose}",
                        capital(&p.scope.to_string()),
                        p.by,
                        one_line(&p.reason)
                    )
                };
                let all: Vec<String> = parks.iter().map(one).collect();
                format!("{}.{next}", all.join("; "))
            }
            Cause::GroupFull { group, running, limit } => {
                format!(
                    "Group {group} is at its limit: {running} of {limit} running in queue {queue}. Starts when one of them ends.{next}"
                )
            }
            Cause::KindFull { running, limit } => {
                format!(
                    "Its kind is at its limit: {running} of {limit} running. Starts when one of them ends.{next}"
                )
            }
            Cause::QueueFull { limit } => {
                format!(
                    "Queue {queue} is at its limit: {limit} of {limit} running. Starts when one of them ends.{next}"
                )
            }
            Cause::Limited { limiter, free_at } => format!(
                "Queue {queue} has used its {} per {}; the next is allowed {}.{next}",
                if limiter.max == 1 {
                    "one start".into()
                } else {
                    format!("{} starts", grouped(limiter.max.into()))
                },
                Millis(limiter.per_ms),
                when(*free_at, now)
            ),
            Cause::Suspect { lone_stalls } => format!(
                "Its process died while it ran, so it waits to run on its own ({lone_stalls} of {} lone stalls).",
                crate::limits::MAX_LONE_STALLS
            ),
            Cause::Behind { higher, older } => {
                let mut parts = vec![];
                if *higher > 0 {
                    parts.push(format!("{} of higher priority", jobs(*higher)));
                }
                if *older > 0 {
                    parts.push(format!("{} of its own lane", jobs(*older)));
                }
                format!("Behind {} in queue {queue}.{next}", parts.join(" and "))
            }
            Cause::Next => {
                format!("Ready: next in line of queue {queue}; starts when a worker is free.{next}")
            }
            Cause::Running { worker, lease_until, .. } if lease_until.since(now) < -1_000 => format!(
                "Held by {worker}, whose lease ended {}: it is gone. Runs again as soon as a worker looks.",
                when(*lease_until, now)
            ),
            Cause::Running { worker, since, lease_until, cancel_requested } => {
                let cancel = if *cancel_requested {
                    " A cancel was asked for; the handler has been told."
                } else {
                    ""
                };
                format!(
                    "Running on {worker}, started {}: attempt {} of {}, lease held {}.{cancel}",
                    when(*since, now),
                    self.attempt,
                    self.max_attempts,
                    until(*lease_until, now)
                )
            }
            Cause::Completed { at } => {
                format!("Completed {}, on attempt {}.", when(*at, now), self.attempt.max(1))
            }
            Cause::Cancelled { at, note } => {
                let note = note.as_ref().map_or(String::new(), |n| format!(": {}", one_line(n)));
                format!("Cancelled {}{note}.", when(*at, now))
            }
            Cause::Dead { at, letter } => format!(
                "Dead because {}: {}: {}. Died {}, attempt {} of {}; review: {}.{}",
                letter.reason.sentence(),
                letter.code,
                one_line(&letter.message),
                when(*at, now),
                self.attempt,
                self.max_attempts,
                letter.review.as_str().replace('_', " "),
                letter.recovered_as.map_or(String::new(), |id| format!(" {id} took its place."))
            ),
        }
    }
}

/// A time for people: relative up to an hour, absolute beyond.
pub fn when(t: Timestamp, now: Timestamp) -> String {
    let ms = t.since(now);
    match ms {
        -999..=999 => "now".into(),
        1_000..3_600_000 => format!("in {}", Millis(ms)),
        -3_599_999..=-1_000 => format!("{} ago", Millis(-ms)),
        _ => jiff::Timestamp::from_millisecond(t.0)
            .map_or_else(|_| t.to_string(), |t| t.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()),
    }
}

/// A time up to which something lasts.
fn until(t: Timestamp, now: Timestamp) -> String {
    match t.since(now) {
        ..1_000 => "until now".into(),
        ms @ 1_000..3_600_000 => format!("for another {}", Millis(ms)),
        _ => format!("until {}", when(t, now)),
    }
}

/// A number with its thousands grouped.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

fn jobs(n: u64) -> String {
    if n == 1 { "1 job".into() } else { format!("{} jobs", grouped(n)) }
}

fn capital(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().collect::<String>() + chars.as_str())
}

/// First line, cut, without a closing full stop, so that it fits into a sentence.
fn one_line(s: &str) -> String {
    let line = s.lines().next().unwrap_or_default().trim().trim_end_matches('.');
    crate::failure::cut(line.to_owned(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ParkScope;

    const NOW: Timestamp = Timestamp(1_763_000_000_000);

    fn why(cause: Cause, expected_start: Option<Timestamp>) -> String {
        explained(cause, expected_start).sentence(NOW)
    }

    fn explained(cause: Cause, expected_start: Option<Timestamp>) -> Why {
        let queue = QueueName::new("billing").unwrap();
        let (priority, recovered_from) = (Priority::Medium, None);
        let (attempt, max_attempts, unserved) = (2, 6, false);
        Why { cause, queue, priority, expected_start, attempt, max_attempts, recovered_from, unserved }
    }

    #[test]
    fn sentences_begin_with_the_cause() {
        let park = |until| Park {
            scope: ParkScope::Queue(QueueName::new("billing").unwrap()),
            by: "operator".into(),
            reason: "month end.".into(),
            until,
        };
        let error = ErrorEntry {
            attempt: 2,
            at: NOW,
            category: crate::failure::Category::TransientServer,
            code: "HTTP_503".into(),
            message: "down for now\nmore".into(),
        };
        let in_a_second = Some(NOW.plus_ms(1_500));
        for (text, expected) in [
            (why(Cause::Delayed, Some(NOW.plus_ms(90_000))), "Delayed; starts in 1 m 30 s."),
            (
                why(Cause::Parked { parks: vec![park(None)] }, None),
                "Queue billing is paused by operator until it is resumed: month end.",
            ),
            (
                why(Cause::Retry { next_attempt: 3, error: Some(error) }, in_a_second),
                "Waits for attempt 3 of 6, in 1.5 s, because attempt 2 failed with HTTP_503: down for now.",
            ),
            (
                why(Cause::Behind { higher: 1_204, older: 1 }, in_a_second),
                "Behind 1,204 jobs of higher priority and 1 job of its own lane in queue billing. Expected start in 1.5 s.",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_letter_names_who_took_its_place_and_that_job_names_the_letter() {
        let id = |n| JobId::from_uuid(uuid::Uuid::from_u128(n));
        let category = crate::failure::Category::InvalidInput;
        let mut letter = DeadLetter::new(category, crate::retry::DeadReason::Permanent, "E", "no address");
        let dead = |letter: &DeadLetter| why(Cause::Dead { at: NOW, letter: letter.clone() }, None);
        assert!(dead(&letter).ends_with("; review: pending review."), "{}", dead(&letter));
        letter.recovered_as = Some(id(7));
        assert!(dead(&letter).ends_with(&format!(" {} took its place.", id(7))), "{}", dead(&letter));
        let new = Why { recovered_from: Some(id(6)), ..explained(Cause::Delayed, None) };
        let expected = format!("Delayed; starts later. It took the place of dead letter {}.", id(6));
        assert_eq!(new.sentence(NOW), expected);
    }

    #[test]
    fn where_nobody_serves_the_queue_it_says_what_to_do() {
        let why = Why { unserved: true, ..explained(Cause::Next, None) };
        assert_eq!(
            why.sentence(NOW),
            "Ready: next in line of queue billing; starts when a worker is free. No worker is known to serve queue billing: start one \
             with `tidegate work --queue billing --exec COMMAND`, or a program that handles its kind."
        );
    }

    #[test]
    fn times_are_relative_up_to_an_hour() {
        assert_eq!(when(NOW.plus_ms(12_000), NOW), "in 12 s");
        assert_eq!(when(NOW.plus_ms(-240_000), NOW), "4 m ago");
        assert!(when(NOW.plus_ms(4_000_000), NOW).ends_with("UTC"));
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
