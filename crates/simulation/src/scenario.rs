//! What kind of world it is.

/// Where a crash strikes, seen from one call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The caller dies before the call.
    CallerBefore,
    /// The caller dies after the commit, before it has the reply.
    CallerAfter,
    /// The reply is lost; the caller lives and does not know.
    ReplyLost,
    /// The store and everybody in its process die before the call.
    AllBefore,
    /// The store and everybody in its process die after the commit.
    AllAfter,
}

impl Crash {
    /// Every place where a crash can strike.
    pub const ALL: [Self; 5] =
        [Self::CallerBefore, Self::CallerAfter, Self::ReplyLost, Self::AllBefore, Self::AllAfter];
}

/// When crashes strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crashes {
    /// Never.
    Never,
    /// At any call, once in so many.
    OneIn(u64),
    /// At exactly this call, counted from 0.
    At(u64, Crash),
}

/// Everything that decides how a world runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Decides the rest.
    pub seed: u64,
    /// Jobs to be sent.
    pub jobs: u64,
    /// When crashes strike.
    pub crashes: Crashes,
    /// Whether processes pause, clocks step and the store restarts.
    pub weather: bool,
    /// Whether to keep every event, for a failure's report or a comparison.
    pub record: bool,
}

impl Scenario {
    /// A world with everything that can go wrong.
    pub fn stormy(seed: u64) -> Self {
        Self { seed, jobs: 60, crashes: Crashes::OneIn(25), weather: true, record: false }
    }

    /// A smaller world in which only one thing goes wrong.
    pub fn calm(seed: u64, crashes: Crashes) -> Self {
        Self { seed, jobs: 20, crashes, weather: false, record: false }
    }
}
