//! Where contexts are stored, as an operator says it.

use std::{fmt, path::PathBuf, str::FromStr};

/// A place for contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A SQLite file; made when it is not there.
    File(PathBuf),
    /// A PostgreSQL database, which several servers may share: its URL.
    Postgres(String),
    /// This process's memory: gone when it ends.
    Memory,
}

impl FromStr for Address {
    type Err = String;

    /// `memory`, a URL that begins with `postgres://` or `postgresql://`, or the path of a file.
    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match (text, scheme) {
            ("", _) => Err("it is empty; give a file, a postgres:// URL, or the word memory".into()),
            ("memory", _) => Ok(Self::Memory),
            (_, Some("postgres" | "postgresql")) => Ok(Self::Postgres(text.into())),
            (_, Some(other)) => {
                Err(format!("{other}:// is not known; give a file, a postgres:// URL, or the word memory"))
            }
            (path, None) => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for Address {
    /// Without a password: of a URL, what comes after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => {
                let host = url.rsplit_once('@').map_or_else(|| url.split_once("://"), Some);
                let host = host.map_or("", |(_, host)| host).split('?').next().unwrap_or_default();
                write!(f, "postgres://{host}")
            }
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl Address {
    /// The URL that the driver wants; of memory, another part of it each time.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(path) => {
                let mut url = "sqlite://".to_owned();
                for c in path.to_string_lossy().chars() {
                    match c {
                        '%' => url.push_str("%25"),
                        '?' => url.push_str("%3F"),
                        '#' => url.push_str("%23"),
                        other => url.push(other),
                    }
                }
                url + "?mode=rwc"
            }
            Self::Postgres(url) => url.clone(),
            Self::Memory => {
                format!("sqlite:file:qrae-{}?mode=memory&cache=shared", uuid::Uuid::new_v4().simple())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_and_shown_without_secrets() {
        let file: Address = "a/b?c%#.sqlite".parse().unwrap();
        assert_eq!(file, Address::File("a/b?c%#.sqlite".into()));
        assert_eq!(file.url(), "sqlite://a/b%3Fc%25%23.sqlite?mode=rwc");
        assert_eq!("memory".parse(), Ok(Address::Memory));
        let url: Address = "postgres://me:secret@db:5432/qrae?password=secret".parse().unwrap();
        assert_eq!(url.to_string(), "postgres://db:5432/qrae");
        assert_eq!("postgresql://db/x".parse::<Address>().unwrap().to_string(), "postgres://db/x");
        assert!("mysql://x".parse::<Address>().unwrap_err().contains("mysql"));
        assert!("".parse::<Address>().is_err());
    }
}
