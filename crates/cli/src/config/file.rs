//! The configuration file: TOML, read with the place of every key, so that a mistake is named with its line. Keys that
//! are not in the table are refused, with the nearest one that is.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use super::settings::{self, Holds, Setting};

/// A value from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The setting.
    pub(crate) key: &'static str,
    /// Its value as text.
    pub(crate) text: String,
    /// The line it is in, from 1.
    pub(crate) line: usize,
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
}

/// Largest configuration file.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file. The error is about the file as a whole.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !size.is_file() || size.len() > MAX_BYTES {
        return Err("it is not a file of at most 1 MiB".into());
    }
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// Everything the text says, or everything that is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, Vec<Problem>> {
    let mut reader = Reader { text, entries: vec![], problems: vec![] };
    match DeTable::parse(text) {
        Err(e) => {
            let line = e.span().map_or(1, |s| reader.line(s.start));
            reader.problems.push(Problem { line, what: format!("it is not TOML: {}", e.message()) });
        }
        Ok(table) => reader.table(table.get_ref(), None),
    }
    if reader.problems.is_empty() {
        Ok(reader.entries)
    } else {
        reader.problems.sort_by_key(|p| p.line);
        Err(reader.problems)
    }
}

struct Reader<'a> {
    text: &'a str,
    entries: Vec<Entry>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn line(&self, byte: usize) -> usize {
        self.text.bytes().take(byte).filter(|b| *b == b'\n').count() + 1
    }

    fn problem(&mut self, byte: usize, what: String) {
        let line = self.line(byte);
        self.problems.push(Problem { line, what });
    }

    fn table(&mut self, table: &DeTable<'_>, section: Option<&str>) {
        for (key, value) in table {
            let at = key.span().start;
            let name = match section {
                Some(section) => format!("{section}.{}", key.get_ref()),
                None => key.get_ref().to_string(),
            };
            let is_section = section.is_none() && settings::sections().any(|s| s == name);
            match (settings::find(&name), value.get_ref()) {
                (Some(setting), _) => self.value(setting, value),
                (None, DeValue::Table(inner)) if is_section => self.table(inner, Some(&name)),
                (None, _) if is_section => self.problem(at, format!("`{name}` is a section: write [{name}]")),
                (None, _) => self.unknown(at, &name),
            }
        }
    }

    fn unknown(&mut self, at: usize, name: &str) {
        let keys = settings::SETTINGS.iter().map(|s| s.key).chain(settings::sections());
        // A name may be right but in the wrong section, or without one.
        let elsewhere = || {
            let last = name.rsplit('.').next().unwrap_or(name);
            settings::SETTINGS.iter().map(|s| s.key).find(|k| k.rsplit('.').next() == Some(last))
        };
        let meant = nearest(name, keys).or_else(elsewhere);
        let meant = meant.map_or(String::new(), |m| format!("; did you mean `{m}`?"));
        self.problem(at, format!("there is no setting `{name}`{meant}"));
    }

    fn value(&mut self, setting: &'static Setting, value: &Spanned<DeValue<'_>>) {
        let at = value.span().start;
        let text = match (setting.holds, value.get_ref()) {
            (Holds::Count(..) | Holds::Ratio, DeValue::Integer(n)) if n.radix() == 10 => {
                n.as_str().replace('_', "")
            }
            (Holds::Ratio, DeValue::Float(n)) => n.as_str().replace('_', ""),
            (Holds::Names, DeValue::Array(list)) => {
                let names: Option<Vec<&str>> = list.iter().map(|v| v.get_ref().as_str()).collect();
                match names {
                    Some(names) => names.join(","),
                    None => return self.problem(at, format!("`{}` should be a list of names", setting.key)),
                }
            }
            (Holds::Count(..) | Holds::Ratio | Holds::Names, _) => {
                let (is, should) = (value.get_ref().type_str(), setting.holds.expected());
                return self.problem(at, format!("`{}` is {is}, it should be {should}", setting.key));
            }
            (_, DeValue::String(text)) => text.to_string(),
            (_, other) => {
                let (is, should) = (other.type_str(), setting.holds.expected());
                return self.problem(at, format!("`{}` is {is}, it should be {should}", setting.key));
            }
        };
        match setting.holds.check(&text) {
            Ok(()) => {
                let line = self.line(at);
                self.entries.push(Entry { key: setting.key, text, line });
            }
            Err(why) => self.problem(at, format!("`{}`: {why}", setting.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read_with_its_lines() {
        let text = "store = \"postgres://localhost/jobs\"\n\n[worker]\nconcurrency = 1_000\nlease = \"10s\"\nqueues = [\"a\", \"b\"]\n";
        let entries = parse(text).unwrap();
        let found: Vec<_> = entries.iter().map(|e| (e.key, e.text.as_str(), e.line)).collect();
        assert!(found.contains(&("store", "postgres://localhost/jobs", 1)));
        assert!(found.contains(&("worker.concurrency", "1000", 4)));
        assert!(found.contains(&("worker.queues", "a,b", 6)));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn every_mistake_is_named_with_its_line_and_the_nearest_name() {
        let text = "stroe = \"x\"\nserver = 3\n[worker]\nconcurency = 4\nlease = 10\ndrain = \"soon\"\n[log]\nbind = \"x\"\n";
        let problems = parse(text).unwrap_err();
        let said: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.line, p.what)).collect();
        assert_eq!(said[0], "1: there is no setting `stroe`; did you mean `store`?");
        assert_eq!(said[1], "2: `server` is a section: write [server]");
        assert_eq!(said[2], "4: there is no setting `worker.concurency`; did you mean `worker.concurrency`?");
        assert!(said[3].starts_with("5: `worker.lease` is integer, it should be a span"), "{said:?}");
        assert!(said[4].starts_with("6: `worker.drain`: \"soon\" is not a span"), "{said:?}");
        assert_eq!(said[5], "8: there is no setting `log.bind`; did you mean `server.bind`?");
        assert_eq!(said.len(), 6);
    }

    #[test]
    fn what_is_not_toml_says_where() {
        let problems = parse("store = \"x\"\n[worker\n").unwrap_err();
        assert_eq!(problems[0].line, 2, "{problems:?}");
    }
}
