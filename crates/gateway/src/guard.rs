//! What a browser could be made to do for a stranger: `Origin` and `Host` are judged before anything else. Pure.

/// Which origins and hosts are good, beside the gateway's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    origins: Vec<Authority>,
    /// Present when `Host` has to name the loopback or one of these.
    hosts: Option<Vec<String>>,
}

/// Scheme, host and port of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    scheme: String,
    host: String,
    port: u16,
}

impl Guard {
    /// `loopback`: the gateway listens where only this machine comes in, so that a `Host` of the outside is an attack
    /// (DNS rebinding: a name of the attacker's that points here).
    ///
    /// # Errors
    /// The origin that is none.
    pub(crate) fn new(origins: &[String], hosts: &[String], loopback: bool) -> Result<Self, String> {
        let parsed = origins.iter().map(|origin| Authority::of_origin(origin).ok_or_else(|| origin.clone()));
        let origins: Vec<Authority> = parsed.collect::<Result<_, _>>()?;
        let named = hosts.iter().map(|host| host.trim().to_ascii_lowercase());
        let of_origins = origins.iter().map(|origin| origin.host.clone());
        let hosts = loopback.then(|| named.chain(of_origins).collect());
        Ok(Self { origins, hosts })
    }

    /// Judges the `Host` of a request.
    pub(crate) fn host_is_good(&self, host: Option<&str>) -> bool {
        let Some(allowed) = &self.hosts else { return true };
        // A browser always sends one; what sends none is no browser.
        let Some(host) = host else { return true };
        let Some((name, _)) = split(host) else { return false };
        is_loopback(&name) || allowed.contains(&name)
    }

    /// Judges the `Origin` of a request to this `Host`. No origin is no browser.
    pub(crate) fn origin_is_good(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        let Some(origin) = origin else { return true };
        let Some(origin) = Authority::of_origin(origin) else { return false };
        if self.origins.contains(&origin) {
            return true;
        }
        // A proxy may have ended TLS, so the scheme says nothing; the port that the scheme stands for does.
        let default = default_port(&origin.scheme);
        host.and_then(split).is_some_and(|(name, port)| name == origin.host && port.unwrap_or(default) == origin.port)
    }
}

impl Authority {
    fn of_origin(origin: &str) -> Option<Self> {
        let (scheme, rest) = origin.trim().trim_end_matches('/').split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = split(rest)?;
        let named = !scheme.is_empty() && !host.contains('/') && !host.contains('@');
        named.then(|| Self { port: port.unwrap_or(default_port(&scheme)), scheme, host })
    }
}

fn default_port(scheme: &str) -> u16 {
    match scheme {
        "https" | "wss" => 443,
        _ => 80,
    }
}

/// Takes host and port apart; the host in lower case, an IPv6 address without brackets.
fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port))
}

/// Whether this name or address can only mean this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Guard;

    #[test]
    fn origins_are_the_gateways_own_or_named() {
        let guard = Guard::new(&["https://App.example".to_owned()], &[], true).unwrap();
        let host = Some("127.0.0.1:42617");
        for (origin, expect) in [
            (None, true),
            (Some("http://127.0.0.1:42617"), true),
            (Some("https://127.0.0.1:42617"), true),
            (Some("http://127.0.0.1:8080"), false),
            (Some("http://127.0.0.1"), false),
            (Some("http://localhost:42617"), false),
            (Some("https://app.example"), true),
            (Some("https://app.example:443"), true),
            (Some("http://app.example"), false),
            (Some("https://app.example.evil.test"), false),
            (Some("https://evil.test"), false),
            (Some("null"), false),
            (Some(""), false),
            (Some("file://"), false),
            (Some("http://127.0.0.1:42617@evil.test"), false),
        ] {
            assert_eq!(guard.origin_is_good(origin, host), expect, "{origin:?}");
        }
        assert!(guard.origin_is_good(Some("https://zc.example"), Some("zc.example")));
        assert!(guard.origin_is_good(Some("http://[::1]:42617"), Some("[::1]:42617")));
        assert!(!guard.origin_is_good(Some("http://127.0.0.1:42617"), None));
        assert_eq!(Guard::new(&["app.example".to_owned()], &[], true).unwrap_err(), "app.example");
    }

    #[test]
    fn a_name_of_the_outside_is_refused_on_the_loopback() {
        let guard = Guard::new(&["https://app.example".to_owned()], &["zc.example".to_owned()], true).unwrap();
        for (host, expect) in [
            (None, true),
            (Some("127.0.0.1:42617"), true),
            (Some("LOCALHOST"), true),
            (Some("[::1]:42617"), true),
            (Some("zc.example:443"), true),
            (Some("app.example"), true),
            (Some("evil.test:42617"), false),
            (Some("127.0.0.1.evil.test"), false),
            (Some("192.168.1.2:42617"), false),
            (Some("localhost:port"), false),
            (Some(""), false),
        ] {
            assert_eq!(guard.host_is_good(host), expect, "{host:?}");
        }
        let open = Guard::new(&[], &[], false).unwrap();
        assert!(open.host_is_good(Some("zc.lan:42617")));
    }
}
