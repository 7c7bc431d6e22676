//! A server without keys trusts programs of its own machine. A web page is not one of them, although it runs there:
//! neither by its own origin (CSRF) nor by a name that it had resolved to loopback (DNS rebinding).

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use tidegate_core::codes;
use tidegate_wire::Problem;

/// Refuses a request that was not sent by a program of this machine to an address of this machine.
pub(crate) fn check(parts: &Parts) -> Result<(), Problem> {
    let refuse = |why: &str| Err(Problem::new(codes::FOREIGN_ORIGIN, why));
    let text =
        |name| parts.headers.get(name).map(|v: &axum::http::HeaderValue| v.to_str().unwrap_or_default());
    let Some(host) = text(HOST) else { return refuse("the request has no `host`") };
    let by_address = parts.uri.authority().map_or(host, axum::http::uri::Authority::as_str);
    if !is_loopback(host) || !is_loopback(by_address) || parts.headers.get_all(HOST).iter().count() != 1 {
        return refuse("the request's `host` is not a loopback address");
    }
    if let Some(origin) = text(ORIGIN) {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !authority.is_some_and(|a| a.eq_ignore_ascii_case(host)) {
            return refuse("the request comes from a web page of another origin");
        }
    }
    if text(axum::http::HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| site != "same-origin" && site != "none")
    {
        return refuse("the request comes from a web page of another site");
    }
    Ok(())
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            return address.parse::<std::net::Ipv6Addr>().is_ok_and(|a| a.is_loopback()) && is_port(port);
        }
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    if !is_port(&authority[host.len()..]) {
        return false;
    }
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|a| a.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_loopback() {
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:7433", "127.1.2.3", "[::1]:7433", "[::1]"] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "::1",
            "localhost:x",
            "127.0.0.1@evil",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }
}
