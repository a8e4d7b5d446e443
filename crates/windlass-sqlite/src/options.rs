//! How a store is opened: a path and options, or a URL.

use std::path::PathBuf;
use windlass_core::name::nearest;
use windlass_core::store::Durability;
use windlass_core::{Error, Result};

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// For the disk: acknowledged work survives a power cut.
    #[default]
    Full,
    /// For the operating system: acknowledged work survives a crash of our processes; a power cut may take the last of
    /// it, and never damages the file.
    Normal,
}

impl Synchronous {
    /// What it promises.
    pub fn durability(self) -> Durability {
        match self {
            Self::Full => Durability::Power,
            Self::Normal => Durability::Process,
        }
    }

    pub(crate) fn as_sql(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The database file.
    pub path: PathBuf,
    /// Make the file if it is not there; without this a missing one is `NotFound`. Tools that only look want that.
    pub create: bool,
    /// What a commit waits for.
    pub synchronous: Synchronous,
    /// Put the store's tables beside those of another application, whose names must not begin with `windlass_`.
    pub adopt: bool,
    /// How long to wait for another process that holds the file.
    pub busy_ms: u64,
}

const NAMES: [&str; 4] = ["synchronous", "adopt", "busy_ms", "create"];

impl Options {
    /// A file, with all defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), create: true, synchronous: Synchronous::Full, adopt: false, busy_ms: 5_000 }
    }

    /// From `sqlite://relative.db` or `sqlite:///absolute.db`, with options in the query.
    pub fn from_url(url: &str) -> Result<Self> {
        let wrong = |reason: String| Error::invalid("store", reason);
        let Some(rest) = url.strip_prefix("sqlite://") else {
            return Err(wrong(format!(
                "`{url}` is no SQLite URL; write sqlite://jobs.db or sqlite:///var/lib/jobs.db"
            )));
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() {
            return Err(wrong("the URL names no file; write sqlite://jobs.db".to_owned()));
        }
        let mut options = Self::new(decode(path)?);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(name, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = |allowed: &str| Error::invalid(name, format!("is `{value}`; write {allowed}"));
        match name {
            "synchronous" => {
                self.synchronous = match value {
                    "full" => Synchronous::Full,
                    "normal" => Synchronous::Normal,
                    _ => return Err(bad("full or normal")),
                }
            }
            "adopt" => self.adopt = value.parse().map_err(|_| bad("true or false"))?,
            "create" => self.create = value.parse().map_err(|_| bad("true or false"))?,
            "busy_ms" => self.busy_ms = value.parse().map_err(|_| bad("milliseconds"))?,
            unknown => {
                let hint = match nearest(unknown, NAMES) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are: {}", NAMES.join(", ")),
                };
                return Err(Error::invalid("store", format!("unknown option `{unknown}`; {hint}")));
            }
        }
        Ok(())
    }
}

/// Undoes percent-encoding, so that any path can be written in a URL.
fn decode(path: &str) -> Result<PathBuf> {
    let wrong = || Error::invalid("store", format!("`{path}` has a % that begins no code such as %20"));
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok()).ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(code, 16).map_err(|_| wrong())?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    if bytes.contains(&0) {
        return Err(Error::invalid("store", "the path contains a NUL"));
    }
    String::from_utf8(bytes).map(PathBuf::from).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_how() {
        assert_eq!(Options::from_url("sqlite://jobs.db").unwrap(), Options::new("jobs.db"));
        assert_eq!(Options::from_url("sqlite:///var/a%20b%25.db").unwrap().path, PathBuf::from("/var/a b%.db"));
        let options = Options::from_url("sqlite://j.db?synchronous=normal&adopt=true&busy_ms=10").unwrap();
        assert_eq!((options.synchronous, options.adopt, options.busy_ms), (Synchronous::Normal, true, 10));
        assert!(options.create && !Options::from_url("sqlite://j.db?create=false").unwrap().create);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_advice() {
        for bad in
            ["sqlite://", "redis://x", "sqlite://a?synchronous=off", "sqlite://a?adopt=1", "sqlite://%", "sqlite://%00"]
        {
            assert!(Options::from_url(bad).is_err(), "{bad}");
        }
        let error = Options::from_url("sqlite://a?syncronous=full").unwrap_err();
        assert!(error.to_string().contains("did you mean `synchronous`?"), "{error}");
        let error = Options::from_url("sqlite://a?sync=full").unwrap_err();
        assert!(error.to_string().contains("there are: synchronous, adopt, busy_ms, create"), "{error}");
    }
}
