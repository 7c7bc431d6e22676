//! Which server of a cluster has a key.

use redis::Value;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands in its first braces, if there is something.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    hashed.bytes().fold(0, crc16) % SLOTS
}

/// CRC16 as XMODEM has it, one byte further.
fn crc16(crc: u16, byte: u8) -> u16 {
    (0..8).fold(
        crc ^ u16::from(byte) << 8,
        |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        },
    )
}

/// A run of slots and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Reads the answer to `CLUSTER SLOTS`. A server that does not know its own address leaves it out: it is where it was asked.
pub(super) fn ranges(answer: &Value, asked: &str) -> Vec<Range> {
    let Value::Array(rows) = answer else { return Vec::new() };
    rows.iter().filter_map(|row| range(row, asked)).collect()
}

fn range(row: &Value, asked: &str) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = &row[..] else { return None };
    let [host, Value::Int(port), ..] = &owner[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    Some(Range {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        host: if host.is_empty() { asked } else { host }.to_owned(),
        port: u16::try_from(*port).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // From the specification of Redis Cluster, and the empty key.
        assert_eq!("123456789".bytes().fold(0, crc16), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("tg:{foo}:l:n-1"), 12_182);
        assert_eq!(slot_of("foo{}{bar}"), "foo{}{bar}".bytes().fold(0, crc16) % SLOTS);
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn owners_are_read_and_one_without_an_address_is_where_it_was_asked() {
        let owner = |host: &str, port| Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        let row = |first, last, owner| Value::Array(vec![Value::Int(first), Value::Int(last), owner]);
        let answer =
            Value::Array(vec![row(0, 99, owner("10.0.0.1", 7_000)), row(100, 200, owner("", 7_001))]);
        let found = ranges(&answer, "localhost");
        assert_eq!(found[0], Range { first: 0, last: 99, host: "10.0.0.1".into(), port: 7_000 });
        assert_eq!((&*found[1].host, found[1].port), ("localhost", 7_001));
    }
}
