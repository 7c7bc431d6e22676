//! Reading a stream of server-sent events, chunk by chunk.

/// Longest line that is read; an event is far shorter.
const MAX_LINE: usize = 1 << 20;

/// One message of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: String,
}

/// A stream in the making.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    next: Message,
}

/// The stream is not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Reader {
    /// Takes a chunk; returns the messages that it completes.
    pub(crate) fn take(&mut self, chunk: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut messages = vec![];
        for part in chunk.split_inclusive(|b| *b == b'\n') {
            if self.line.len() + part.len() > MAX_LINE {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                messages.extend(self.line(line.trim_end_matches(['\r', '\n'])));
            }
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.next);
            // Comments alone, as they keep a connection alive, are no message.
            return (message != Message::default()).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.next.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.next.event),
            "data" => {
                if !self.next.data.is_empty() {
                    self.next.data.push('\n');
                }
                self.next.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let text = ": hello\n\nid: a-1-0\nevent: started\ndata: {\"a\":\ndata: 1}\n\n: ping\n\nevent: gap\r\ndata:{}\r\n\r\n";
        let started =
            Message { id: Some("a-1-0".into()), event: "started".into(), data: "{\"a\":\n1}".into() };
        let gap = Message { id: None, event: "gap".into(), data: "{}".into() };
        for size in [1, 2, 7, text.len()] {
            let mut reader = Reader::default();
            let messages: Vec<Message> =
                text.as_bytes().chunks(size).flat_map(|c| reader.take(c).unwrap()).collect();
            assert_eq!(messages, [started.clone(), gap.clone()], "cut into {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut reader = Reader::default();
        let chunk = vec![b'x'; MAX_LINE / 2 + 1];
        assert_eq!(reader.take(&chunk), Ok(vec![]));
        assert_eq!(reader.take(&chunk), Err(TooLong));
    }
}
