//! Errors on the wire: RFC 9457 problems with a stable code.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_core::codes::{self, Code, Fault};
use tidegate_core::ids::InvalidName;
use tidegate_store::Error;

/// Media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request was not done. Nothing was stored unless the detail says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problem(Box<ProblemBody>);

impl std::ops::Deref for Problem {
    type Target = ProblemBody;
    fn deref(&self) -> &ProblemBody {
        &self.0
    }
}

impl std::ops::DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut ProblemBody {
        &mut self.0
    }
}

/// What a problem says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Problem))]
pub struct ProblemBody {
    /// Page of the code, as a path of the server that answered.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(example = "/v1/errors/TG2009"))]
    pub page: String,
    /// What the code means.
    #[cfg_attr(feature = "openapi", schema(example = "the request could not be read"))]
    pub title: String,
    /// HTTP status.
    #[cfg_attr(feature = "openapi", schema(example = 400, minimum = 400, maximum = 599))]
    pub status: u16,
    /// What was wrong this time.
    #[cfg_attr(feature = "openapi", schema(example = "unknown field `prioritty`; did you mean `priority`?"))]
    pub detail: String,
    /// Stable code, explained by `tidegate explain CODE`.
    #[cfg_attr(feature = "openapi", schema(example = "TG2009"))]
    pub code: String,
    /// JSON pointer into the request's body, or `?name` for a parameter of the query.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(example = "/prioritty"))]
    pub pointer: Option<String>,
    /// What to do next.
    pub hint: String,
    /// When it makes sense to try again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
    /// Under which id the server's log says more, where the failure is the server's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub incident: Option<String>,
}

impl Problem {
    /// A problem with this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemBody {
            page: format!("/v1/errors/{}", code.id),
            title: code.title.to_owned(),
            status: status(code),
            detail: detail.into(),
            code: code.id.to_owned(),
            pointer: None,
            hint: code.hint.to_owned(),
            retry_after_ms: None,
            incident: None,
        }))
    }

    /// The request could not be read.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(codes::INVALID_REQUEST, detail)
    }

    /// Says where in the request it was.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// The same problem further inside: the pointer is below `parent`.
    #[must_use]
    pub fn within(mut self, parent: impl fmt::Display) -> Self {
        let inner = self.pointer.take().unwrap_or_default();
        self.pointer = Some(format!("{parent}{inner}"));
        self
    }

    /// The code, if this version knows it.
    pub fn known_code(&self) -> Option<Code> {
        codes::find(&self.code)
    }
}

/// The HTTP status of a code.
fn status(code: Code) -> u16 {
    match code {
        codes::INVALID_REQUEST => 400,
        codes::NO_KEY => 401,
        codes::NOT_ALLOWED | codes::FOREIGN_ORIGIN => 403,
        codes::WRONG_METHOD => 405,
        codes::TOO_LARGE => 413,
        codes::CONTENT_TYPE => 415,
        codes::QUEUE_FULL | codes::TOO_MANY_REQUESTS => 429,
        codes::TOO_MANY_WAITING | codes::SERVER_BUSY | Code { fault: Fault::Unreachable, .. } => 503,
        Code { fault: Fault::Usage, .. } => 422,
        Code { fault: Fault::NotFound, .. } => 404,
        Code { fault: Fault::State, .. } => 409,
        Code { fault: Fault::Ours, .. } => 500,
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(pointer) = &self.pointer {
            write!(f, " (at {pointer})")?;
        }
        if let Some(incident) = &self.incident {
            write!(f, " (incident {incident})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        Self::new(e.code, e.detail)
    }
}

impl From<InvalidName> for Problem {
    fn from(e: InvalidName) -> Self {
        Self::new(e.code(), e.to_string())
    }
}

/// For whoever asked as if the store were here. A code of a newer server becomes the nearest that is known.
impl From<Problem> for Error {
    fn from(p: Problem) -> Self {
        let code = p.known_code().unwrap_or(match p.status {
            404 => codes::JOB_NOT_FOUND,
            409 | 429 => codes::WRONG_STATE,
            400..=499 => codes::INVALID_REQUEST,
            502..=504 => codes::STORE_FAILED,
            _ => codes::INTERNAL,
        });
        Self::new(code, p.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_over_the_wire() {
        for code in codes::ALL {
            let problem = Problem::from(Error::new(*code, "what happened"));
            assert!((400..600).contains(&problem.status), "{code}");
            let text = serde_json::to_string(&problem).unwrap();
            let back = Error::from(serde_json::from_str::<Problem>(&text).unwrap());
            assert_eq!((back.code, back.detail.as_str()), (*code, "what happened"));
        }
    }
}
