//! Whether the backend is to be asked: a machine without clock or I/O.
//!
//! It is told what became of each operation, and of each beat (the registration that a process renews anyway, which writes
//! and so also finds a backend that only reads). One failure is enough to go on locally, because nobody fails by that;
//! two good beats in a row bring the backend back. Meanwhile nothing but beats is sent, one at a time, with growing pauses.

use tidegate_core::gates::Micros;

/// Pauses between beats while the backend is away.
const FIRST_PAUSE: Micros = 100_000;
const LONGEST_PAUSE: Micros = 500_000;
/// Good beats in a row that bring it back.
const GOOD_BEATS: u32 = 2;
/// How long without a slow answer until it is no longer slow.
const CALM: Micros = 1_000_000;
/// Permits that came too late, all of them, for so long and at least so many: its answers are of no use.
const LATE_FOR: Micros = 1_000_000;
const LATE_AT_LEAST: u32 = 5;
/// Beats are rarer by this factor while it is slow: it has enough to do.
pub(super) const STRETCH: Micros = 3;

/// Why the backend is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It cannot be reached, or the connection broke.
    Unreachable,
    /// It answers, and refuses to write.
    ReadOnly,
    /// It does not answer in time.
    Slow,
    /// It answers after the time at which its permits may be used.
    TooLate,
}

/// How the backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    /// Answers take long; it is still asked.
    Slow,
    Away(Cause),
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Nothing,
    /// It is slow, or no longer.
    Pace,
    Left,
    Back,
}

/// Times that decide.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// An answer that takes longer is slow.
    pub slow: Micros,
    /// One that takes longer is none.
    pub away: Micros,
    /// Time between beats.
    pub beat: Micros,
}

#[derive(Debug)]
pub(super) struct Watch {
    limits: Limits,
    state: State,
    since: Micros,
    slow_at: Micros,
    /// Good beats in a row, and the pause before the next one, while it is away.
    good: u32,
    pause: Micros,
    /// Permits that came too late in a row, and since when.
    late: u32,
    late_since: Micros,
    /// What a beat may take to bring it back.
    quick: Micros,
}

impl Watch {
    pub(super) fn new(now: Micros, limits: Limits) -> Self {
        Self {
            limits,
            state: State::Normal,
            since: now,
            slow_at: Micros::MIN / 2,
            good: 0,
            pause: FIRST_PAUSE,
            late: 0,
            late_since: now,
            quick: limits.slow,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn since(&self) -> Micros {
        self.since
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    /// How long to wait before the next beat.
    pub(super) fn pause(&self) -> Micros {
        match self.state {
            State::Normal => self.limits.beat,
            State::Slow => self.limits.beat * STRETCH,
            State::Away(_) => self.pause,
        }
    }

    fn enter(&mut self, now: Micros, state: State) {
        (self.state, self.since) = (state, now);
    }

    /// An operation was answered. What comes while the backend is away is an answer to an old question.
    pub(super) fn answered(&mut self, now: Micros, took: Micros) -> Turn {
        match self.state {
            State::Away(_) => Turn::Nothing,
            _ if took > self.limits.away => self.leave(now, Cause::Slow),
            _ if took > self.limits.slow => self.slowed(now),
            State::Slow if now - self.slow_at >= CALM => {
                self.enter(now, State::Normal);
                Turn::Pace
            }
            State::Slow | State::Normal => Turn::Nothing,
        }
    }

    /// An operation has not been answered for so long.
    pub(super) fn outstanding(&mut self, now: Micros, age: Micros) -> Turn {
        match self.state {
            State::Away(_) => Turn::Nothing,
            _ if age >= self.limits.away => self.leave(now, Cause::Slow),
            _ if age >= self.limits.slow => self.slowed(now),
            State::Slow | State::Normal => Turn::Nothing,
        }
    }

    fn slowed(&mut self, now: Micros) -> Turn {
        self.slow_at = now;
        if self.state == State::Slow {
            return Turn::Nothing;
        }
        self.enter(now, State::Slow);
        Turn::Pace
    }

    /// An operation failed.
    pub(super) fn failed(&mut self, now: Micros, cause: Cause) -> Turn {
        if self.is_away() { Turn::Nothing } else { self.leave(now, cause) }
    }

    /// A permit came, in time to be used or not. `usable`: how long it could have been used.
    pub(super) fn permit(&mut self, now: Micros, late: bool, usable: Micros) -> Turn {
        if !late || self.is_away() {
            self.late = 0;
            return Turn::Nothing;
        }
        if self.late == 0 {
            self.late_since = now;
        }
        self.late += 1;
        if self.late < LATE_AT_LEAST || now - self.late_since < LATE_FOR {
            return Turn::Nothing;
        }
        let turn = self.leave(now, Cause::TooLate);
        self.quick = self.limits.slow.min(usable);
        turn
    }

    fn leave(&mut self, now: Micros, cause: Cause) -> Turn {
        self.enter(now, State::Away(cause));
        (self.good, self.pause, self.late, self.quick) = (0, FIRST_PAUSE, 0, self.limits.slow);
        Turn::Left
    }

    /// A beat was answered.
    pub(super) fn beat_answered(&mut self, now: Micros, took: Micros) -> Turn {
        if !self.is_away() {
            return self.answered(now, took);
        }
        if took > self.quick {
            let why = if self.quick < self.limits.slow { Cause::TooLate } else { Cause::Slow };
            return self.beat_failed(now, why);
        }
        self.good += 1;
        self.pause = FIRST_PAUSE;
        if self.good < GOOD_BEATS {
            return Turn::Nothing;
        }
        self.enter(now, State::Normal);
        Turn::Back
    }

    /// A beat failed.
    pub(super) fn beat_failed(&mut self, now: Micros, cause: Cause) -> Turn {
        if !self.is_away() {
            return self.leave(now, cause);
        }
        self.good = 0;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if self.state != State::Away(cause) {
            // The same outage, in another form.
            self.state = State::Away(cause);
            return Turn::Pace;
        }
        Turn::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { slow: 500_000, away: 2_000_000, beat: 500_000 };
    const S: Micros = 1_000_000;

    #[test]
    fn one_failure_leaves_and_two_good_beats_bring_back() {
        let mut w = Watch::new(0, LIMITS);
        assert_eq!(w.failed(S, Cause::Unreachable), Turn::Left);
        assert_eq!(w.failed(S, Cause::Unreachable), Turn::Nothing);
        assert_eq!(w.beat_answered(2 * S, 100), Turn::Nothing);
        assert_eq!(
            w.beat_failed(3 * S, Cause::Unreachable),
            Turn::Nothing,
            "a good beat alone is not enough"
        );
        assert_eq!(w.beat_answered(4 * S, 100), Turn::Nothing);
        assert_eq!(w.beat_answered(5 * S, 100), Turn::Back);
        assert_eq!((w.state(), w.since()), (State::Normal, 5 * S));
    }

    #[test]
    fn slow_is_asked_less_and_too_slow_is_not_asked() {
        let mut w = Watch::new(0, LIMITS);
        assert_eq!(w.answered(S, 400_000), Turn::Nothing);
        assert_eq!(w.outstanding(S, 500_000), Turn::Pace);
        assert_eq!((w.state(), w.pause()), (State::Slow, LIMITS.beat * STRETCH));
        assert_eq!(w.answered(S + 900_000, 10), Turn::Nothing, "not calm for long enough");
        assert_eq!(w.answered(S + 1_000_000, 10), Turn::Pace);
        assert_eq!(w.state(), State::Normal);
        assert_eq!(w.outstanding(3 * S, 2_000_000), Turn::Left);
        assert_eq!(w.beat_answered(4 * S, 600_000), Turn::Nothing, "a slow beat does not count");
        assert_eq!(w.beat_answered(5 * S, 10), Turn::Nothing);
        assert_eq!(w.beat_answered(6 * S, 10), Turn::Back);
    }

    #[test]
    fn answers_to_old_questions_bring_nothing_back() {
        let mut w = Watch::new(0, LIMITS);
        w.failed(0, Cause::Unreachable);
        for n in 0..10 {
            assert_eq!(w.answered(n, 10), Turn::Nothing);
        }
        assert!(w.is_away());
    }

    #[test]
    fn beats_get_rarer_and_never_stop() {
        let mut w = Watch::new(0, LIMITS);
        w.failed(0, Cause::Unreachable);
        let pauses: Vec<Micros> = (0..5)
            .map(|n| {
                w.beat_failed(n, Cause::Unreachable);
                w.pause()
            })
            .collect();
        assert_eq!(pauses, [200_000, 400_000, 500_000, 500_000, 500_000]);
    }

    #[test]
    fn permits_that_all_come_too_late_are_an_outage() {
        let mut w = Watch::new(0, LIMITS);
        for n in 0..20 {
            assert_eq!(w.permit(n * 100_000, n % 7 != 3, 50_000), Turn::Nothing, "one in time is enough");
        }
        let mut w = Watch::new(0, LIMITS);
        let turns: Vec<Turn> = (0..=10).map(|n| w.permit(n * 100_000, true, 50_000)).collect();
        assert!(turns[..10].iter().all(|t| *t == Turn::Nothing));
        assert_eq!(turns[10], Turn::Left);
        for n in 0..5 {
            assert_ne!(w.beat_answered(2 * S + n, 100_000), Turn::Back, "still too late to be used");
        }
        w.beat_answered(3 * S, 20_000);
        assert_eq!(w.beat_answered(4 * S, 20_000), Turn::Back);
    }

    #[test]
    fn another_cause_of_the_same_outage_is_said() {
        let mut w = Watch::new(0, LIMITS);
        w.failed(0, Cause::Unreachable);
        assert_eq!(w.beat_failed(S, Cause::ReadOnly), Turn::Pace);
        assert_eq!((w.state(), w.since()), (State::Away(Cause::ReadOnly), 0));
    }
}
