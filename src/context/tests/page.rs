//! Which addresses are one page, and which are not.

use proptest::prelude::*;

use crate::context::page::{TRACKING, page};

fn spelling(address: &str) -> String {
    page(address).unwrap_or_else(|| panic!("{address} names no page"))
}

#[test]
fn spellings_of_one_page_are_one() {
    let same: &[(&str, &[&str])] = &[
        (
            "example.org",
            &[
                "http://example.org",
                "https://example.org/",
                "HTTPS://Example.ORG:443//",
                "http://www.example.org:80",
            ],
        ),
        (
            "example.org",
            &[
                "https://me:secret@example.org./?#",
                "https://example.org/#top",
                "https://example.org/?utm_source=x#:~:text=a",
            ],
        ),
        ("example.org:8080/a", &["http://example.org:8080/a/", "https://www.example.org:8080/b/../a"]),
        (
            "xn--mnchen-3ya.de/%C3%BC",
            &["https://münchen.de/ü", "https://MÜNCHEN.de/%c3%bc/", "https://xn--mnchen-3ya.de/%C3%BC"],
        ),
        (
            "en.wikipedia.org/wiki/Mercury_(planet)",
            &[
                "https://en.wikipedia.org/wiki/Mercury_(planet)",
                "http://en.wikipedia.org/wiki/Mercury_%28planet%29#Orbit",
            ],
        ),
        ("a.org/~x/1,2'", &["https://a.org/%7Ex/1%2c2%27", "https://a.org/~x/1,2'"]),
        (
            "a.org/p?a=1&b=x%20y&b=w&c",
            &[
                "https://a.org/p?b=x+y&c&a=1&b=w",
                "https://a.org/p/?&c&b=x%20y&&b=w&fbclid=IwAR&a=1&UTM_Campaign=z",
            ],
        ),
        ("a.org?t=A%7CB/C", &["https://a.org/?t=A|B%2fC", "https://a.org?t=A%7cB/C"]),
        ("a.org/app#!/topic/7", &["https://a.org/app/#!/topic/7/", "http://a.org/app#!/topic/7:~:text=x"]),
        ("127.0.0.1/a", &["http://0x7f.1/a", "http://127.0.0.1:80/a"]),
        ("[::1]:8000", &["http://[0:0::1]:8000/"]),
        ("a.org/100%25", &["https://a.org/100%", "https://a.org/100%25"]),
        ("co.uk", &["https://www.co.uk"]),
    ];
    for (want, addresses) in same {
        for address in *addresses {
            assert_eq!(&spelling(address), want, "{address}");
        }
    }
}

#[test]
fn what_may_be_two_pages_stays_two() {
    let different = [
        "https://a.org/p",
        "https://a.org/P",
        "https://a.org/p/q",
        "https://a.org/p//q",
        "https://a.org/p%2Fq",
        "https://a.org/p?a",
        "https://a.org/p?a=1",
        "https://a.org/p?a=1&a=2",
        "https://a.org/p?a=2&a=1",
        "https://a.org/p?a=1%26a=2",
        "https://a.org/p?a%3D1",
        "https://a.org/p?id=gclid",
        "https://a.org/p?ref=x",
        "https://a.org/p?q=%C4%E3",
        "https://a.org/p?q=%BA%C3",
        "https://a.org/p?q=c%2B%2B",
        "https://a.org/p?q=c++",
        "https://a.org/p#/x",
        "https://a.org/p#/y",
        "https://a.org/p#!x",
        "https://b.a.org/p",
        "https://a.org:8443/p",
        "https://www.com/p",
        "https://com/p",
        "https://a.org/p%2525",
        "https://a.org/p%25",
        "https://a.org/index.html",
        "https://a.org/p;x=1",
        "https://a.org/p%3Bx=1",
        "https://m.a.org/p",
        "https://web.archive.org/web/2020/http://a.org/p",
        "https://web.archive.org/web/2021/http://a.org/p",
    ];
    for (i, a) in different.iter().enumerate() {
        for b in &different[..i] {
            assert_ne!(spelling(a), spelling(b), "{a} and {b}");
        }
    }
}

#[test]
fn a_spelling_is_its_own_spelling() {
    for address in [
        "https://a.org/p%2525?x=%2B+%20&y=a%3Db#!/%2f",
        "http://a.org:443/;a=b/?q=%%20%zz&%75tm_source=1",
        "https://a.org/[x]|^{y}\\z",
        "https://a.org/\u{202e}é?é=é",
        "https://www.a.org:80",
    ] {
        let once = spelling(address);
        assert_eq!(spelling(&format!("https://{once}")), once, "{address}");
    }
}

#[test]
fn other_names_are_no_pages() {
    for name in [
        "",
        "doc-17",
        "example.org/a",
        "www.example.org",
        "/a/b",
        "file:///a",
        "doi:10.1000/182",
        "ftp://a.org/",
        "http://",
        "https://a b/",
        "localhost:8080/x",
        "mailto:a@b.org",
    ] {
        assert_eq!(page(name), None, "{name}");
    }
}

#[test]
fn tracking_parameters_are_listed_as_they_are_looked_up() {
    assert!(TRACKING.is_sorted());
    assert!(TRACKING.iter().all(|name| *name == name.to_ascii_lowercase()));
}

proptest! {
    #[test]
    fn any_spelling_is_its_own_spelling(
        host in "(www\\.)?[a-z0-9.%-]{1,6}\\.org\\.?(:[0-9]{1,4})?",
        rest in "([/?#&=.!+~:;$ |a%]|%2[0-9a-fA-F]|%3[a-fA-F]|%7[eE]|utm_a=|é){0,16}",
    ) {
        if let Some(once) = page(&format!("http://{host}/{rest}")) {
            prop_assert_eq!(page(&format!("https://{once}")), Some(once));
        }
    }

    #[test]
    fn no_text_is_too_odd_to_be_looked_at(text in any::<String>()) {
        let _ = page(&text);
        let _ = page(&format!("https://a.org/{text}"));
    }
}
