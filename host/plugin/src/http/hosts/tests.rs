use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> HostPattern {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn target(uri: &str) -> Option<Target> {
    Target::of(&uri.parse().ok()?)
}

fn allows(allowed: &str, uri: &str) -> bool {
    target(uri).is_some_and(|target| pattern(allowed).matches(&target))
}

#[test]
fn a_name_is_that_name_over_https_at_its_port() {
    for uri in ["https://api.example.com/v1?a=b", "https://API.Example.com", "https://api.example.com.:443/"] {
        assert!(allows("api.example.com", uri), "{uri}");
    }
    for uri in [
        "http://api.example.com/",
        "https://api.example.com:8443/",
        "https://example.com/",
        "https://a.api.example.com/",
        "https://api.example.com.evil.net/",
        "https://api.example.com@evil.net/",
        "https://evil.net#api.example.com",
        "https://user@api.example.com/",
        "https://api.example.com:0443x/",
        "https://api.example.com:/",
        "ftp://api.example.com/",
    ] {
        assert!(!allows("api.example.com", uri), "{uri}");
    }
    assert!(allows("http://api.example.com", "http://api.example.com/"));
    assert!(allows("http://api.example.com:8080", "http://api.example.com:8080/"));
    assert!(allows("HTTPS://api.example.com:8443", "https://api.example.com:8443"));
}

#[test]
fn a_star_is_what_is_below_and_not_the_name_itself() {
    let below = "*.internal.example:8443";
    for host in ["a.internal.example", "b.a.internal.example", "A.INTERNAL.EXAMPLE."] {
        assert!(allows(below, &format!("https://{host}:8443/")), "{host}");
    }
    for host in ["internal.example", "evilinternal.example", "a.internal.example.net", "10.0.0.1"] {
        assert!(!allows(below, &format!("https://{host}:8443/")), "{host}");
    }
    for host in ["a", "a.b.c", "10.0.0.1", "[::1]"] {
        assert!(allows("*", &format!("https://{host}/")) && !allows("*", &format!("http://{host}/")), "{host}");
    }
}

#[test]
fn addresses_are_themselves_in_every_form_that_is_one() {
    assert!(allows("10.1.2.3:8080", "https://10.1.2.3:8080/"));
    assert!(allows("[2001:DB8::1]", "https://[2001:db8:0:0::1]/"));
    assert!(allows("10.1.2.3", "https://[::ffff:10.1.2.3]/"));
    assert!(allows("[::ffff:10.1.2.3]", "https://10.1.2.3/"));
    assert_eq!(pattern("[::1]").address(), Some(Ipv6Addr::LOCALHOST.into()));
    assert_eq!(pattern("*.one").address(), None);
    // What a resolver would take for an address, and the list for a name.
    for host in ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "1.2.3.4.5", "a.0x1", "256.0.0.1"] {
        assert_eq!(target(&format!("https://{host}/")), None, "{host}");
        assert!(matches!(host.parse::<HostPattern>(), Err(InvalidHost::Host(_))), "{host}");
    }
}

#[test]
fn what_cannot_be_granted_is_told_with_its_reason() {
    let refused = |text: &str| text.parse::<HostPattern>().unwrap_err();
    assert!(matches!(refused("ftp://a.b"), InvalidHost::Scheme(_)));
    for text in ["a.b/c", "https://a.b/", "u@a.b", "a.b?c", "a.b\\c", "a.b#c"] {
        assert!(matches!(refused(text), InvalidHost::More(_)), "{text}");
    }
    for text in ["a.b:", "a.b:0", "a.b:65536", "a.b:+1", "a.b:x", "[::1]:", "[::1]x", "2001:db8::1"] {
        assert!(matches!(refused(text), InvalidHost::Port(_)), "{text}");
    }
    for text in
        ["", "*.", "a..b", "-a", "a-", "a b", "bücher.example", "a.*.b", "*a.b", "[10.0.0.1]", ".a", "[fe80::1%1]"]
    {
        assert!(matches!(refused(text), InvalidHost::Host(_)), "{text}: {:?}", refused(text));
    }
    assert!(matches!(refused(&format!("{}.a", "x".repeat(64))), InvalidHost::Host(_)));
    assert!(matches!(refused(&"x.".repeat(128)), InvalidHost::Host(_)));
}

fn label() -> impl Strategy<Value = String> {
    "[a-c]([a-c0-9_-]{0,3}[a-c0-9])?"
}

fn names() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn hosts() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => names(),
        1 => any::<[u8; 4]>().prop_map(|bytes| Ipv4Addr::from(bytes).to_string()),
        1 => any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from(bits))),
    ]
}

fn places() -> impl Strategy<Value = String> {
    (any::<bool>(), hosts(), prop::option::of(1u16..)).prop_map(|(is_secure, host, port)| {
        let scheme = if is_secure { "https" } else { "http" };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{host}{port}")
    })
}

proptest! {
    #[test]
    fn a_target_is_told_as_what_allows_it_and_nothing_else(one in places(), other in places()) {
        let (one, other) = (target(&one).unwrap(), target(&other).unwrap());
        let allowing: HostPattern = one.to_string().parse().unwrap();
        prop_assert!(allowing.matches(&one));
        prop_assert_eq!(allowing.matches(&other), one == other);
        prop_assert_eq!(allowing.to_string(), one.to_string());
    }

    #[test]
    fn a_star_goes_by_whole_labels(below in names(), asked in names()) {
        let labels: Vec<&str> = asked.split('.').collect();
        let ends: Vec<&str> = below.split('.').collect();
        let expected = labels.len() > ends.len() && labels.ends_with(&ends);
        prop_assert_eq!(allows(&format!("*.{below}"), &format!("https://{asked}/")), expected);
    }

    #[test]
    fn any_text_is_refused_or_told_as_it_is_meant(text in "\\PC{0,20}|(https?://)?[a-c*.:\\[\\]0-9x@/-]{0,12}") {
        if let Ok(pattern) = text.parse::<HostPattern>() {
            prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern));
        }
        // What names a target is what goes on the wire: no user, no second host.
        if let Some(target) = target(&text) {
            let uri: Uri = text.parse().unwrap();
            let authority = uri.authority().unwrap();
            prop_assert!(!authority.as_str().contains('@'));
            prop_assert_eq!(authority.port_u16().unwrap_or(default_port(target.is_secure)), target.port);
        }
    }
}
