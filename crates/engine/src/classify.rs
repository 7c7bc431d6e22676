//! Which category an error has by its type alone. What is not listed is a defect of the handler.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use tidegate_core::codes::{self, Fault};
use tidegate_core::failure::Category;

use crate::Error;

/// A rule that a worker was given: says the category of errors it knows.
pub(crate) type Rule = Box<dyn Fn(&(dyn StdError + 'static)) -> Option<Category> + Send + Sync>;

/// Code of errors that nobody classified.
pub(crate) const UNCLASSIFIED: &str = "ERROR";

/// Category and code of an error, from its type or that of its causes.
pub(crate) fn by_type(error: &(dyn StdError + 'static)) -> (Category, Cow<'static, str>) {
    causes(error).find_map(known).unwrap_or((Category::LogicError, Cow::Borrowed(UNCLASSIFIED)))
}

/// Asks the rules about an error and its causes, outermost first.
pub(crate) fn by_rules(error: &(dyn StdError + 'static), rules: &[Rule]) -> Option<Category> {
    causes(error).find_map(|e| rules.iter().find_map(|rule| rule(e)))
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |e: &&'a (dyn StdError + 'static)| (*e).source()).take(16)
}

fn known(error: &(dyn StdError + 'static)) -> Option<(Category, Cow<'static, str>)> {
    if let Some(ours) = error.downcast_ref::<Error>() {
        let retryable = ours.code.fault == Fault::Unreachable || ours.code == codes::QUEUE_FULL;
        let category = if retryable { Category::ResourceUnavailable } else { Category::LogicError };
        return Some((category, Cow::Borrowed(ours.code.id)));
    }
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return by_kind(io.kind()).map(|(category, code)| (category, Cow::Borrowed(code)));
    }
    if let Some(json) = error.downcast_ref::<serde_json::Error>() {
        let broken = json.io_error_kind().and_then(by_kind);
        let (category, code) = broken.unwrap_or((Category::InvalidInput, "INVALID_JSON"));
        return Some((category, Cow::Borrowed(code)));
    }
    None
}

fn by_kind(kind: ErrorKind) -> Option<(Category, &'static str)> {
    let code = match kind {
        ErrorKind::ConnectionRefused => "ECONNREFUSED",
        ErrorKind::ConnectionReset => "ECONNRESET",
        ErrorKind::ConnectionAborted => "ECONNABORTED",
        ErrorKind::NotConnected => "ENOTCONN",
        ErrorKind::BrokenPipe => "EPIPE",
        ErrorKind::TimedOut => "ETIMEDOUT",
        ErrorKind::HostUnreachable => "EHOSTUNREACH",
        ErrorKind::NetworkUnreachable => "ENETUNREACH",
        ErrorKind::NetworkDown => "ENETDOWN",
        ErrorKind::UnexpectedEof => "EOF",
        ErrorKind::Interrupted => "EINTR",
        ErrorKind::StorageFull => return Some((Category::ResourceUnavailable, "ENOSPC")),
        ErrorKind::OutOfMemory => return Some((Category::SystemFailure, "ENOMEM")),
        ErrorKind::NotFound => return Some((Category::LogicError, "ENOENT")),
        ErrorKind::PermissionDenied => return Some((Category::LogicError, "EACCES")),
        _ => return None,
    };
    Some((Category::TransientNetwork, code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[derive(Debug, thiserror::Error)]
    #[error("the call failed")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn a_broken_connection_is_found_under_other_errors() {
        let failure = Failure::from(Wrapped(ErrorKind::TimedOut.into()));
        assert_eq!((failure.category(), failure.code()), (Some(Category::TransientNetwork), "ETIMEDOUT"));
        assert_eq!(failure.message(), "the call failed: timed out");
    }

    #[test]
    fn json_that_does_not_fit_is_invalid_input_and_the_unknown_is_a_defect() {
        let json = serde_json::from_str::<u32>("\"x\"").unwrap_err();
        assert_eq!(Failure::from(json).category(), Some(Category::InvalidInput));
        let unknown = Failure::from("x".parse::<u32>().unwrap_err());
        assert_eq!((unknown.category(), unknown.code()), (Some(Category::LogicError), UNCLASSIFIED));
    }

    #[test]
    fn rules_see_the_causes_too() {
        let rules: Vec<Rule> = vec![Box::new(|e| e.is::<io::Error>().then_some(Category::PermanentConfig))];
        assert_eq!(by_rules(&Wrapped(ErrorKind::Other.into()), &rules), Some(Category::PermanentConfig));
        assert_eq!(by_rules(&std::fmt::Error, &rules), None);
    }
}
