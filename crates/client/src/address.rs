//! Where the server is.

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use tidegate_core::codes;
use tidegate_store::{Error, Result};

/// The server's address: everything of a request's address that is the same each time.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Path in front of `/v1`, where a proxy puts one.
    prefix: String,
}

impl Address {
    /// Reads `http://host:port` or `https://host/prefix`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let refuse = |why: &str| Error::new(codes::INVALID_STORE_URL, format!("the server's address {why}"));
        // What follows a # is dropped when it is read; it may be the rest of a password.
        if url.contains(['@', '#']) {
            return Err(refuse("must not carry a user or a password: the key goes into TIDEGATE_KEY"));
        }
        let parts = url.parse::<Uri>().map_err(|e| refuse(&format!("cannot be read: {e}")))?.into_parts();
        let scheme = parts.scheme.ok_or_else(|| refuse("must begin with http:// or https://"))?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(refuse("must begin with http:// or https://"));
        }
        let authority = parts.authority.ok_or_else(|| refuse("names no host"))?;
        let path = parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str);
        if path.contains('?') {
            return Err(refuse("must not have a query"));
        }
        Ok(Self { scheme, authority, prefix: path.trim_end_matches('/').to_owned() })
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The address of a path, which may have a query.
    pub(crate) fn join(&self, path: &str) -> Result<Uri> {
        let path = if self.prefix.is_empty() {
            PathAndQuery::try_from(path)
        } else {
            PathAndQuery::try_from(format!("{}{path}", self.prefix))
        };
        let invalid = |e: hyper::http::Error| {
            Error::new(codes::INVALID_REQUEST, format!("{e}: no path can be made of it"))
        };
        let path = path.map_err(|e| invalid(e.into()))?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(invalid)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined_with_and_without_a_prefix() {
        for (given, path, joined) in [
            ("http://127.0.0.1:7433", "/v1/about", "http://127.0.0.1:7433/v1/about"),
            ("http://[::1]:7433/", "/v1/jobs?limit=1", "http://[::1]:7433/v1/jobs?limit=1"),
            ("https://jobs.example.com/tide/", "/v1/about", "https://jobs.example.com/tide/v1/about"),
        ] {
            assert_eq!(Address::parse(given).unwrap().join(path).unwrap().to_string(), joined);
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused_without_repeating_a_secret() {
        let odd = ["", "127.0.0.1:7433", "ftp://host", "http://", "http://host/?a=b"];
        for bad in
            odd.into_iter().chain(["http://u:secret@host", "http://u:secret#x@host:1", "http://h#secret"])
        {
            let error = Address::parse(bad).unwrap_err();
            assert_eq!(error.code, codes::INVALID_STORE_URL, "{bad}");
            assert!(!error.detail.contains("secret"), "{error}");
        }
    }
}
