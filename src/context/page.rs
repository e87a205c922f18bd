//! Which page an address names: one spelling for all addresses that, by the habits of the web, lead to one page.
//!
//! Two pages taken for one lose the second for good; one page taken for two costs a place in a batch. So only
//! differences that hardly any site gives a meaning to are dropped:
//!
//! | in the address | in the spelling |
//! |---|---|
//! | `http`, `https`, user name, password | dropped: one site serves both, the same to all |
//! | host | lower case, IDN in ASCII, IP addresses in one form, without final dot, without `www.` |
//! | port | dropped where it is 80 or 443, the schemes' own |
//! | path | `.` and `..` resolved, final slashes dropped; upper and lower case differ |
//! | query | without tracking parameters ([`TRACKING`]), sorted by name (repeated ones keep their order), `+` is a space, empty parts dropped |
//! | fragment | dropped, as a place in the page; kept where it begins with `/` or `!`, as there it is the page |
//! | `%xx` | upper case; not used for letters, digits and what has no meaning of its own (`-._~!'()*,:@`, in a query also `/?$`) |
//!
//! Not merged: index files, mobile and print versions, AMP, short links. Nothing is fetched. What is not `http` or `https`
//! names no page here.

use std::fmt::Write;

use url::Url;

/// Parameters that say how a reader came to the page. Lower case; besides them all that begin with `utm_`.
pub(super) const TRACKING: &[&str] = &[
    "_ga",
    "_gl",
    "_hsenc",
    "_hsmi",
    "dclid",
    "fbclid",
    "gad_source",
    "gbraid",
    "gclid",
    "gclsrc",
    "igsh",
    "igshid",
    "li_fat_id",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "msclkid",
    "srsltid",
    "ttclid",
    "twclid",
    "wbraid",
    "wprov",
    "yclid",
    "ysclid",
];

/// The page's spelling, as in `en.wikipedia.org/wiki/Mercury_(planet)`; none where `address` is no address of a page.
/// Spelling a spelling again, with `https://` before it, changes nothing.
pub(super) fn page(address: &str) -> Option<String> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let host = url.host_str()?.trim_end_matches('.');
    let bare = host.trim_start_matches("www.");
    let mut page = if bare.contains('.') { bare } else { host }.to_owned();
    if let Some(port) = url.port().filter(|port| !matches!(port, 80 | 443)) {
        let _ = write!(page, ":{port}");
    }
    page += spelled(url.path(), "/;=&+$", "").trim_end_matches('/');
    let query = query(url.query().unwrap_or_default());
    if !query.is_empty() {
        page = page + "?" + &query;
    }
    page += &route(url.fragment().unwrap_or_default());
    Some(page)
}

fn query(text: &str) -> String {
    let parts = text.split('&').filter(|part| !part.is_empty());
    let mut parts: Vec<String> = parts.map(|part| spelled(&part.replace('+', "%20"), "=;", "/?$")).collect();
    parts.retain(|part| !is_tracking(name(part)));
    parts.sort_by(|a, b| name(a).cmp(name(b)));
    parts.join("&")
}

fn name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or(parameter)
}

fn is_tracking(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("utm_") || TRACKING.contains(&name.as_str())
}

/// The part of a fragment that a page's own program reads as an address, with its `#`.
fn route(fragment: &str) -> String {
    let fragment = spelled(fragment, "/;=&+$?", "");
    let place = fragment.split(":~:").next().unwrap_or_default().trim_end_matches('/');
    if place.starts_with(['/', '!']) && place.len() > 1 { format!("#{place}") } else { String::new() }
}

/// One way to write each character: plain and `free` ones as they are; those of `meaningful`, too, where they were so; all
/// others, and `%` itself, as `%XX`. Bytes stay bytes: text that is not UTF-8 is not mixed up.
fn spelled(text: &str, meaningful: &str, free: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { hex(bytes.get(at + 1..at + 3)) } else { None };
        let byte = escaped.unwrap_or(byte);
        let is_free = is_plain(byte) || free.as_bytes().contains(&byte);
        if is_free || escaped.is_none() && meaningful.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let digit = |d: u8| char::from(d).to_digit(16);
    let value = digit(*digits?.first()?)? * 16 + digit(*digits?.get(1)?)?;
    u8::try_from(value).ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!'()*,:@".contains(&byte)
}
