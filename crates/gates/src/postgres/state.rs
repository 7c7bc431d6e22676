//! A partition's state as bytes: one byte for the format, then the state.

use tidegate_core::gates::{Compiled, Partition};

/// Raised when the state's fields change, so that an older program does not take a newer state for a damaged one, and a newer
/// one does not read other fields into an older state.
const FORMAT: u8 = 3;

/// Why a state could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// A newer program wrote it. It is left alone.
    Newer(u8),
    /// It is damaged: lost.
    Damaged(String),
}

pub(super) fn encode(state: &Partition) -> Result<Vec<u8>, String> {
    postcard::to_extend(state, vec![FORMAT]).map_err(|e| e.to_string())
}

/// Reads a state that was written under these settings.
pub(super) fn decode(set: &Compiled, bytes: &[u8]) -> Result<Partition, Unreadable> {
    let Some((format, rest)) = bytes.split_first() else {
        return Err(Unreadable::Damaged("it is empty".into()));
    };
    if *format > FORMAT {
        return Err(Unreadable::Newer(*format));
    }
    if *format < FORMAT {
        return Err(Unreadable::Damaged(format!("its format is {format}, this program's {FORMAT}")));
    }
    let (mut state, left): (Partition, _) =
        postcard::take_from_bytes(rest).map_err(|e| Unreadable::Damaged(e.to_string()))?;
    if !left.is_empty() {
        return Err(Unreadable::Damaged("there is more than a state".into()));
    }
    state.reindex(set);
    Ok(state)
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::config::Slots;
    use tidegate_core::gates::{Gate, GateSet, Kind, Start};

    use super::*;

    #[test]
    fn newer_states_are_told_from_damaged_ones() {
        let set = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(1)))]);
        let set = Compiled::new(set).unwrap();
        let mut bytes = encode(&Partition::new(&set, Start::Full)).unwrap();
        assert!(decode(&set, &bytes).unwrap().is_idle());
        bytes[0] = FORMAT + 1;
        assert_eq!(decode(&set, &bytes).unwrap_err(), Unreadable::Newer(FORMAT + 1));
        bytes[0] = FORMAT - 1;
        assert!(matches!(decode(&set, &bytes).unwrap_err(), Unreadable::Damaged(_)));
        bytes[0] = FORMAT;
        bytes.pop();
        assert!(matches!(decode(&set, &bytes).unwrap_err(), Unreadable::Damaged(_)));
    }
}
