//! A server without keys trusts programs of its own machine. A web page is not one of them, although it runs there:
//! neither by its own origin (CSRF) nor by a name that it had resolved to loopback (DNS rebinding).

use std::net::IpAddr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use tidegate_core::codes;
use tidegate_wire::Problem;

/// Refuses a request that was not sent by a program of this machine to an address of this machine. `peer` is where its
/// connection comes from: what its header says could be said from anywhere.
pub(crate) fn check(parts: &Parts, peer: Option<IpAddr>) -> Result<(), Problem> {
    let refuse = |why: &str| Err(Problem::new(codes::FOREIGN_ORIGIN, why));
    if !peer.is_some_and(|ip| ip.to_canonical().is_loopback()) {
        return refuse("the request comes from another machine");
    }
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
    fn a_header_that_says_loopback_does_not_make_a_peer_local() {
        let (parts, ()) = axum::http::Request::builder()
            .uri("/v1/jobs")
            .header(HOST, "127.0.0.1:7433")
            .body(())
            .unwrap()
            .into_parts();
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(check(&parts, Some(local.parse().unwrap())).is_ok(), "{local}");
        }
        for remote in ["10.0.0.1", "192.168.0.1", "fe80::1", "::ffff:10.0.0.1"] {
            let refused = check(&parts, Some(remote.parse().unwrap())).unwrap_err();
            assert_eq!(refused.code, codes::FOREIGN_ORIGIN.id, "{remote}");
        }
        assert!(check(&parts, None).is_err(), "nobody knows where it comes from");
    }

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
